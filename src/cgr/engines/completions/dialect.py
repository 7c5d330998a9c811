"""How completions servers differ: what each can do, the JSON of a request to it, and how its replies are read.

There are two APIs: llama.cpp's own `/completion`, and OpenAI's `/v1/completions` as vLLM, SGLang and llama-server have
it. What a server can do beyond that is written down as a `Dialect`: found out by detect.py, or known (llama.cpp in this
process).
"""

from __future__ import annotations

import codecs
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

from cgr.engines.base import TOP_MEAN, Sampling, WrittenStop
from cgr.engines.completions.http import BadReply, Purpose
from cgr.errors import EngineError
from cgr.records import Record, Token

Api = Literal["openai", "llama.cpp"]
LLAMA = "llama.cpp"
PROBE_TOP = 5  # alternatives that a probe asks for
ZERO_PROBABILITY = -9999.0  # what vLLM writes for a probability of zero
BAN = -100.0
OPENAI_STOPS: dict[str, WrittenStop] = {"stop": "eos", "length": "limit"}
LLAMA_STOPS: dict[str, WrittenStop] = {"eos": "eos", "limit": "limit", "word": "stop"}
VLLM_FIELDS = {
    "skip_special_tokens": False,
    "spaces_between_special_tokens": False,
    "add_special_tokens": False,
    "return_token_ids": True,
    "return_tokens_as_token_ids": True,
}


@dataclass(frozen=True, slots=True)
class Dialect(Record):
    """What a server can do. `slots`: completions at once, 0 if unknown; `prefix_cache`: None if unknown; `extras`: the
    server accepts fields that OpenAI does not have."""

    api: Api = "openai"
    server: str = "unknown"
    context: int = 0
    slots: int = 0
    tokenize: Literal["vllm", "llama.cpp", "local"] = "local"
    token_prompts: bool = True
    token_ids: Literal["field", "logprobs", "none"] = "field"
    logprobs: int = 0
    raw_logprobs: bool = True
    logit_bias: bool = True
    seed: bool = True
    stream: bool = True
    extras: bool = True
    prefix_cache: bool | None = None

    @property
    def path(self) -> str:
        """Where completions are requested."""
        return "/completion" if self.api == LLAMA else "/v1/completions"

    @property
    def exact(self) -> bool:
        """Whether tokens go both ways as ids, so that no text has to be tokenised again."""
        return self.token_prompts and self.token_ids != "none"


@dataclass(frozen=True, slots=True)
class CompletionRequest:
    """One completion: after these ids (or this text), at most `count` tokens. `top`: alternatives to return with their
    log-probabilities; None: no log-probabilities. `slot`: of a llama.cpp server; None lets the server choose.
    `purpose`: what the HTTP request is for. `only_text`: the ids of a stream need not be complete."""

    prompt: Sequence[int] | str
    count: int
    sampling: Sampling
    seed: int = 0
    banned: Sequence[int] = ()
    top: int | None = None
    stream: bool = False
    slot: int | None = None
    stop: tuple[str, ...] = ()
    purpose: Purpose | None = None
    only_text: bool = False


class Piece(NamedTuple):  # one is made for each token of each stream, and a frozen dataclass takes four times as long
    """One event of a stream, or a whole completion: tokens, their text, and, if it is the last, why it ended. `unnamed`:
    the number of tokens before it whose ids the server does not tell."""

    ids: tuple[int, ...]
    text: str
    tokens: tuple[Token, ...] = ()
    cached: int = 0
    prefilled: int = 0
    stop: WrittenStop | None = None
    truncated: bool = False
    unnamed: int = 0


async def by_token(piece: Piece, decode: Callable[[Sequence[int]], Awaitable[str]]) -> list[Piece]:
    """A whole completion as a stream would have it: a piece for each token, with its own text, and the end."""
    texts = [await decode((token,)) for token in piece.ids]
    pairs = enumerate(zip(piece.ids, texts, strict=True))
    single = [Piece((token,), text, piece.tokens[number : number + 1]) for number, (token, text) in pairs]
    return [*single, piece._replace(ids=(), text="", tokens=())]


def mean_top(token: Token) -> float:
    """The mean of the highest log-probabilities at this token's position."""
    highest = sorted((logprob for _, logprob in token.top), reverse=True)[:TOP_MEAN]
    return math.fsum(highest) / len(highest) if highest else math.nan


def probe_request(
    dialect: Dialect,
    prompt: Sequence[int] | str,
    limit: int,
    top: int = 0,
    slot: int | None = None,
    purpose: Purpose | None = None,
) -> CompletionRequest:
    """A greedy completion with log-probabilities."""
    most = min(max(PROBE_TOP, top), dialect.logprobs)
    greedy = Sampling(temperature=0.0)
    return CompletionRequest(prompt, limit, greedy, top=most, stream=dialect.stream, slot=slot, purpose=purpose)


def request_body(dialect: Dialect, model: str, request: CompletionRequest) -> dict[str, Any]:
    """The JSON of a request. Every sampling parameter is sent, since servers have defaults of their own."""
    prompt = request.prompt if isinstance(request.prompt, str) else list(request.prompt)
    common: dict[str, Any] = {
        "prompt": prompt,
        "temperature": request.sampling.temperature,
        "top_p": request.sampling.top_p,
        **({"stream": True} if request.stream else {}),
        **({"stop": list(request.stop)} if request.stop else {}),
    }
    return common | (_llama_fields(dialect, request) if dialect.api == LLAMA else _openai_fields(dialect, model, request))


def _llama_fields(dialect: Dialect, request: CompletionRequest) -> dict[str, Any]:
    """`n_probs` makes the server sort the vocabulary for each token, so it is sent only where needed."""
    return {
        "n_predict": request.count,
        "seed": request.seed,
        "cache_prompt": True,
        "return_tokens": True,
        "logit_bias": [[token, False] for token in request.banned],
        **_llama_sampling(request.sampling, dialect.context),
        **({"id_slot": request.slot} if request.slot is not None else {}),
        **({"n_probs": request.top, "timings_per_token": True} if request.top is not None else {}),
    }


def _llama_sampling(sampling: Sampling, context: int) -> dict[str, Any]:
    """llama.cpp applies only the samplers that are listed, in this order; penalties look back over the whole context."""
    penalised = sampling.filters() & {"presence_penalty", "frequency_penalty", "repetition_penalty"}
    penalties = {
        "repeat_penalty": sampling.repetition_penalty,
        "presence_penalty": sampling.presence_penalty,
        "frequency_penalty": sampling.frequency_penalty,
        "repeat_last_n": context,
    }
    used = {"temperature", "top_p", *sampling.filters(), *(("penalties",) if penalised else ())}
    return {
        "top_k": sampling.top_k,
        "min_p": sampling.min_p,
        "samplers": [name for name in ("penalties", "temperature", "top_k", "top_p", "min_p") if name in used],
        **(penalties if penalised else {}),
    }


def _openai_fields(dialect: Dialect, model: str, request: CompletionRequest) -> dict[str, Any]:
    sampling = request.sampling
    top = 1 if request.top is None and dialect.token_ids == "logprobs" else request.top
    if not dialect.extras:
        extras: dict[str, Any] = {}
    elif dialect.server.startswith(LLAMA):
        extras = {**_llama_sampling(sampling, dialect.context), "cache_prompt": True}
    else:
        extras = {
            **VLLM_FIELDS,
            "top_k": sampling.top_k or -1,
            "min_p": sampling.min_p,
            "repetition_penalty": sampling.repetition_penalty,
        }
    return {
        "model": model,
        "max_tokens": request.count,
        "presence_penalty": sampling.presence_penalty,
        "frequency_penalty": sampling.frequency_penalty,
        **extras,
        **({"seed": request.seed} if dialect.seed else {}),
        **({"logprobs": min(top, dialect.logprobs)} if top is not None else {}),
        **({"logit_bias": {str(token): BAN for token in request.banned}} if request.banned else {}),
        **({"stream_options": {"include_usage": True}} if request.stream and top is not None and dialect.extras else {}),
    }


def read_reply(dialect: Dialect, data: dict[str, Any], decoder: codecs.IncrementalDecoder | None = None) -> Piece:
    """One event of a stream, or one whole completion."""
    try:
        return _llama_piece(data, decoder) if dialect.api == LLAMA else _openai_piece(dialect, data, decoder)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise BadReply("it sent JSON that is not a completion") from error


def _llama_piece(data: dict[str, Any], decoder: codecs.IncrementalDecoder | None) -> Piece:
    timings = data.get("timings", {})
    return Piece(
        ids=tuple(map(int, data.get("tokens", ()))),
        text=str(data.get("content", "")),
        tokens=_llama_tokens(data.get("completion_probabilities", ()), decoder),
        cached=timings.get("cache_n", 0),
        prefilled=timings.get("prompt_n", 0),
        stop=LLAMA_STOPS[data["stop_type"]] if data.get("stop") else None,
        truncated=bool(data.get("truncated")),
    )


def _llama_tokens(rows: Sequence[dict[str, Any]], decoder: codecs.IncrementalDecoder | None) -> tuple[Token, ...]:
    """Tokens with ids and bytes; the decoder joins a character that is spread over several tokens."""

    def token(row: dict[str, Any]) -> Token:
        raw = bytes(row["bytes"])
        text = decoder.decode(raw) if decoder else raw.decode("utf-8", errors="replace")
        top = tuple((one["id"], one["logprob"]) for one in row["top_logprobs"])
        return Token(int(row["id"]), text, float(row["logprob"]), top)

    return tuple(map(token, rows))


def _openai_piece(dialect: Dialect, data: dict[str, Any], decoder: codecs.IncrementalDecoder | None) -> Piece:
    cached, prefilled = _cached_and_prefilled(usage) if (usage := data.get("usage")) else (0, 0)
    if not data["choices"]:
        return Piece((), "", cached=cached, prefilled=prefilled)
    choice = data["choices"][0]
    logprobs = choice.get("logprobs")
    text, tokens = str(choice.get("text") or ""), _openai_tokens(logprobs, decoder) if logprobs else ()
    ids = tuple(map(int, choice.get("token_ids") or ())) if dialect.token_ids == "field" else tuple(t.id for t in tokens)
    if len(tokens) == 1 and not tokens[0].text:
        tokens = (replace(tokens[0], text=text),)
    reason = choice.get("finish_reason")
    return Piece(ids, text, tokens, cached, prefilled, None if reason is None else _openai_stop(reason, choice))


def _cached_and_prefilled(usage: dict[str, Any]) -> tuple[int, int]:
    """Tokens of the prompt that were cached, and that were read; zeros if the server does not say."""
    details = usage.get("prompt_tokens_details") or {}
    cached = int(details.get("cached_tokens") or 0)
    return cached, max(int(usage.get("prompt_tokens") or 0) - cached, 0) if details else 0


def _openai_stop(reason: str, choice: dict[str, Any]) -> WrittenStop:
    """vLLM names a stop string in `stop_reason`; otherwise it looks like the end of the turn."""
    if reason not in OPENAI_STOPS:
        raise BadReply(f"it ended the completion with {reason!r}")
    return "stop" if reason == "stop" and isinstance(choice.get("stop_reason"), str) else OPENAI_STOPS[reason]


def _openai_tokens(logprobs: dict[str, Any], decoder: codecs.IncrementalDecoder | None) -> tuple[Token, ...]:
    if "content" in logprobs:  # llama-server, with ids and bytes
        return _llama_tokens(logprobs["content"], decoder)
    given = logprobs.get("top_logprobs") or []
    tops = [one or {} for one in given] or [{} for _ in logprobs["tokens"]]
    rows = zip(logprobs["tokens"], logprobs["token_logprobs"], tops, strict=True)
    return tuple(_named_token(name, logprob, top) for name, logprob, top in rows)


def _named_token(name: str, logprob: float | None, top: dict[str, float]) -> Token:
    """A token by name: `token_id:25` if the server knows ids, else its text, and no id."""
    if logprob is None or not math.isfinite(logprob) or logprob <= ZERO_PROBABILITY:
        raise EngineError(
            "The server gave no probability for a token that it chose.", "cgr needs the raw log-probability of every token."
        )
    known = _id_in(name)
    alternatives = tuple((number, value) for one, value in top.items() if (number := _id_in(one)) is not None)
    return Token(-1 if known is None else known, name if known is None else "", float(logprob), alternatives)


def _id_in(name: str) -> int | None:
    number = name.removeprefix("token_id:")
    return int(number) if number != name and number.isdigit() else None
