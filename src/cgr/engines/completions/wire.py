"""Speaking to a completions server: bodies out, events in. The one place that knows llama.cpp's field names."""

from __future__ import annotations

import codecs
import json
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from cgr.engines.base import TOP_MEAN, Sampling
from cgr.engines.completions.http1 import Client, Lost, Reply
from cgr.errors import DoesNotFit, EngineError
from cgr.records import Token

TOP = 5
T = TypeVar("T")
TRIES, PAUSE = 4, 0.05


@dataclass(frozen=True, slots=True)
class Piece:
    """One event of a stream: some tokens, their text, and, on the last, how it ended."""

    ids: tuple[int, ...]
    text: str
    tokens: tuple[Token, ...] = ()
    cached: int = 0
    prefilled: int = 0
    stop: str | None = None
    truncated: bool = False


class Wire:
    """A client of one server. Not shared between event loops."""

    def __init__(self, address: str, key: str) -> None:
        self._client = Client(address, {"Authorization": f"Bearer {key}"})

    async def tokenize(self, text: str, *, add_special: bool = False) -> tuple[int, ...]:
        body = {"content": text, "add_special": add_special, "parse_special": True}
        return tuple(_field(await self.post("/tokenize", body), "tokens", list))

    async def detokenize(self, ids: Sequence[int]) -> str:
        return _field(await self.post("/detokenize", {"tokens": list(ids)}), "content", str)

    async def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        async with self._asked(path, body) as reply:
            return await _read(reply)

    @asynccontextmanager
    async def _asked(self, path: str, body: dict[str, Any]) -> AsyncIterator[Reply]:
        """Asking twice is safe, since the same request has the same reply."""
        try:
            async with self._client.post(path, body, tries=TRIES, pause=PAUSE) as reply:
                yield reply
        except Lost as error:
            raise EngineError(f"The server was lost: {error}.", "Start again.") from error

    async def complete(self, body: dict[str, Any]) -> Piece:
        """A whole completion at once: cheaper than a stream where nobody watches."""
        return _piece(await self.post("/completion", body))

    @asynccontextmanager
    async def stream(self, body: dict[str, Any]) -> AsyncIterator[AsyncIterator[Piece]]:
        """A completion as it comes. Leaving the context closes the stream, which cancels it on the server."""
        async with self._asked("/completion", body | {"stream": True}) as reply:
            if reply.head.is_error:
                await _read(reply)
            async with aclosing(_pieces(reply)) as pieces:
                yield pieces

    async def close(self) -> None:
        await self._client.close()


def thinking_body(
    prompt: Sequence[int], count: int, sampling: Sampling, seed: int, slot: int, banned: Sequence[int] = ()
) -> dict[str, Any]:
    logprobs = {"n_probs": TOP_MEAN} if sampling.logprobs else {}
    return logprobs | {
        "prompt": list(prompt),
        "n_predict": count,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": 0,
        "min_p": 0.0,
        "samplers": ["temperature", "top_p"],
        "seed": seed,
        "id_slot": slot,
        "cache_prompt": True,
        "return_tokens": True,
        "logit_bias": [[token, False] for token in banned],
    }


def probe_body(prompt: Sequence[int], limit: int, slot: int, top: int = 0) -> dict[str, Any]:
    """Greedy, with raw log-probabilities, and the count of cached tokens with the first token already."""
    body = thinking_body(prompt, limit, Sampling(temperature=0.0), 0, slot)
    return body | {"n_probs": max(TOP, top), "timings_per_token": True}


async def _pieces(reply: Reply) -> AsyncGenerator[Piece, None]:
    rest, decoder = b"", codecs.getincrementaldecoder("utf-8")(errors="replace")
    async with aclosing(reply.parts()) as chunks:
        async for chunk in chunks:
            *events, rest = (rest + chunk).split(b"\n\n")
            for event in events:
                if event.startswith(b"data: ") and event != b"data: [DONE]":
                    yield _piece(_json(event[6:]), decoder)
                elif event.startswith(b"error: "):
                    raise failure(_json(event[7:]))


def _json(data: bytes) -> dict[str, Any]:
    try:
        value = json.loads(data)
    except ValueError as error:
        raise EngineError("The server sent something that is not JSON.", "Is it a completions server?") from error
    if not isinstance(value, dict):
        raise _strange()
    return value


def _field(data: dict[str, Any], name: str, kind: type[T]) -> T:
    value = data.get(name)
    if not isinstance(value, kind):
        raise _strange()
    return value


def _strange() -> EngineError:
    return EngineError("The server sent JSON that is not a completion's.", "Is it a completions server?")


def _piece(data: dict[str, Any], decoder: codecs.IncrementalDecoder | None = None) -> Piece:
    if "error" in data:
        raise failure(data)
    try:
        return read_piece(data, decoder)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _strange() from error


def read_piece(data: dict[str, Any], decoder: codecs.IncrementalDecoder | None) -> Piece:
    timings = data.get("timings", {})
    return Piece(
        ids=tuple(map(int, data.get("tokens", ()))),
        text=str(data.get("content", "")),
        tokens=tuple(_token(one, decoder) for one in data.get("completion_probabilities", ())),
        cached=timings.get("cache_n", 0),
        prefilled=timings.get("prompt_n", 0),
        stop=data.get("stop_type") if data.get("stop") else None,
        truncated=bool(data.get("truncated")),
    )


def _token(data: dict[str, Any], decoder: codecs.IncrementalDecoder | None) -> Token:
    raw = bytes(data["bytes"])
    text = decoder.decode(raw) if decoder else raw.decode("utf-8", errors="replace")
    top = tuple((one["id"], one["logprob"]) for one in data["top_logprobs"])
    return Token(int(data["id"]), text, float(data["logprob"]), top)


async def _read(reply: Reply) -> dict[str, Any]:
    data = _json(await reply.read())
    if reply.head.is_error:
        raise failure(data)
    return data


def failure(data: dict[str, Any]) -> EngineError | DoesNotFit:
    detail = data.get("error", data)
    message = detail.get("message", detail) if isinstance(detail, dict) else detail
    if "context" in str(message):
        return DoesNotFit(f"The server ran out of context: {message}.", "Lower --budget, or shorten the question.")
    return EngineError(f"The server refused: {message}.", "Check the model and the options.")
