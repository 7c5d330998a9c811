"""A server like vLLM, on aiohttp, with a model that is a few rules: it can be slow, and fail in every way that servers do.

Its tokens are characters, beside three special ones. It thinks a fixed text of `length` characters. A probe gets `probed`,
"42", and is sure of it from `sure_at` on. Afterwards it writes `answer`: that the answer is 42.
"""

from __future__ import annotations

import asyncio
import json
import math
import random
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

OPEN, CLOSE, EOS = 1_200_001, 1_200_002, 1_200_003
SPECIAL = {"<think>": OPEN, "</think>": CLOSE, "<eos>": EOS}
NAMES = {number: text for text, number in SPECIAL.items()}
THOUGHT = "I think about x. "
ANSWER = "The answer is \\boxed{42}."
MODEL = "fake-model"
ASK = "\\boxed{"


@dataclass
class Trouble:
    """What goes wrong with a completion of this kind (think, probe, answer, chat): before it, or after some events."""

    kind: str
    what: str
    after: int = 0


@dataclass
class FakeUpstream:
    """`pace`: seconds between tokens. `running`: completions in flight by kind; `aborted`: those that the client left."""

    length: int = 200
    sure_at: int = 100
    thought: str = THOUGHT
    probed: str = "42"
    final: str | None = None  # what a probe gets after the end of the thinking, if that is another answer
    answer: str = ANSWER
    pace: float = 0.0
    probe_seconds: float = 0.0
    first_seconds: float = 0.0
    held: bool = False  # nothing is sent while it is
    pause_in_event: float = 0.0  # of /v1/responses and /v1/messages, between its name and its data
    caches: bool = True
    chat_thinks: bool = False  # whether its chat thinks and answers as its completions do; else it writes a poem
    endpoints: bool = True  # whether it has /v1/responses and /v1/messages
    troubles: list[Trouble] = field(default_factory=list)
    requests: list[tuple[str, dict[str, str], dict[str, Any]]] = field(default_factory=list)
    running: dict[str, int] = field(default_factory=dict)
    aborted: list[str] = field(default_factory=list)
    tokens: int = 0
    address: str = ""
    port: int = 0

    def reset(self) -> None:
        fresh = FakeUpstream(address=self.address, port=self.port)
        for name in (
            "length",
            "sure_at",
            "thought",
            "probed",
            "final",
            "answer",
            "pace",
            "probe_seconds",
            "first_seconds",
            "held",
            "pause_in_event",
            "caches",
            "chat_thinks",
            "troubles",
            "requests",
            "aborted",
        ):
            setattr(self, name, getattr(fresh, name))

    def bodies(self, kind: str) -> list[dict[str, Any]]:
        return [body for name, _, body in self.requests if name == kind]

    def headers(self, kind: str) -> list[dict[str, str]]:
        return [headers for name, headers, _ in self.requests if name == kind]

    def wait_idle(self, seconds: float = 20.0) -> None:
        """Until nothing runs any more."""
        until = time.monotonic() + seconds
        while any(self.running.values()):
            assert time.monotonic() < until, f"still running: {self.running}"
            time.sleep(0.01)

    def wait_for(self, kind: str, seconds: float = 20.0) -> None:
        """Until a completion of this kind runs."""
        until = time.monotonic() + seconds
        while not self.running.get(kind):
            assert time.monotonic() < until, f"no {kind}: {self.running}"
            time.sleep(0.002)

    # The model

    def next_token(self, ids: Sequence[int], body: dict[str, Any], chance: random.Random) -> tuple[int, float]:
        """The next token and its probability."""
        if OPEN not in ids:
            banned = {int(one) for one in body.get("logit_bias") or {}}
            letters = [ord(one) for one in "abcdefgh" if ord(one) not in banned]
            return (chance.choice(letters) if body["temperature"] else letters[0]), 0.5
        inside = list(ids[_last(ids, OPEN) + 1 :])
        closed = CLOSE in inside
        tail = text_of(inside[_last(inside, CLOSE) + 1 :] if closed else inside)
        if ASK in tail and not (closed and tail.startswith("The")):
            return self._probed(tail, self.final if closed and self.final else self.probed)
        if closed:
            return (ord(self.answer[len(tail)]), 0.75) if len(tail) < len(self.answer) else (EOS, 0.9)
        at = len(tail.removeprefix("\n"))
        return (CLOSE, 0.9) if at >= self.length else (ord(self.thought[at % len(self.thought)]), 0.9)

    def _probed(self, tail: str, answer: str) -> tuple[int, float]:
        before, _, given = tail.rpartition(ASK)
        rest = f"{answer}}}"[len(given) :]
        sure = len(before) >= self.sure_at
        return (ord(rest[0]), 0.999 if sure else 0.5) if rest else (EOS, 0.9)

    # Requests

    @staticmethod
    def kind_of(body: dict[str, Any], ids: Sequence[int]) -> str:
        if OPEN not in ids:
            return "detect"
        if body.get("logprobs") and body["temperature"] == 0 and text_of(ids).endswith(ASK):
            return "probe"
        return "answer" if CLOSE in ids[_last(ids, OPEN) :] else "think"

    async def completions(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        ids = body["prompt"] if isinstance(body["prompt"], list) else encode(body["prompt"])
        kind = self.kind_of(body, ids)
        return await self._answer(request, kind, body, lambda: self._pieces(kind, ids, body))

    async def chat(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        return await self._answer(request, "chat", body, lambda: self._chat_pieces(body))

    async def _answer(self, request: web.Request, kind: str, body: dict[str, Any], pieces: Any) -> web.StreamResponse:
        self.requests.append((kind, {name.lower(): value for name, value in request.headers.items()}, body))
        trouble = next((one for one in self.troubles if one.kind == kind), None)
        if trouble:
            self.troubles.remove(trouble)
        if trouble and trouble.what.isdigit():
            headers = {"Retry-After": "0.05"} if trouble.what == "429" else {}
            return web.json_response({"error": {"message": "trouble"}}, status=int(trouble.what), headers=headers)
        self.running[kind] = self.running.get(kind, 0) + 1
        try:
            return await self._send(request, kind, body, pieces(), trouble)
        except asyncio.CancelledError:
            self.aborted.append(kind)
            raise
        except ConnectionError:  # as if it had been cancelled; aiohttp would print it
            self.aborted.append(kind)
            return web.Response()
        finally:
            self.running[kind] -= 1

    async def _send(
        self,
        request: web.Request,
        kind: str,
        body: dict[str, Any],
        pieces: Iterator[dict[str, Any]],
        trouble: Trouble | None,
    ) -> web.StreamResponse:
        if trouble and trouble.what == "hang" and not trouble.after:
            await asyncio.sleep(3600)
        await asyncio.sleep(self.first_seconds if kind != "detect" else 0)
        while self.held and kind != "detect":  # noqa: ASYNC110 - it is set by another thread
            await asyncio.sleep(0.1)
        if kind == "probe":
            await asyncio.sleep(self.probe_seconds)
        if not body.get("stream"):
            collected = list(pieces)
            await asyncio.sleep(self.pace * len(collected) if kind != "detect" else 0)
            return web.json_response(_joined(collected, kind))
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for number, piece in enumerate(pieces):
            if trouble and number >= trouble.after:
                await self._spoil(trouble, request, response)
                return response
            self.tokens += 1
            await response.write(b"data: " + json.dumps(piece).encode() + b"\n\n")
            if self.pace and kind != "detect":
                await asyncio.sleep(self.pace)
        await response.write(b"data: [DONE]\n\n")
        return response

    @staticmethod
    async def _spoil(trouble: Trouble, request: web.Request, response: web.StreamResponse) -> None:
        if trouble.what == "hang":
            await asyncio.sleep(3600)
        if trouble.what == "garbage":
            await response.write(b'data: {"oops\n\n')
            return
        if trouble.what == "in event":
            await response.write(b'data: {"oops": 1}\n')
            await asyncio.sleep(0.1)
        if trouble.what in ("reset", "in event"):
            assert request.transport is not None
            request.transport.abort()
        # "half": the stream ends without its end

    def _pieces(self, kind: str, ids: Sequence[int], body: dict[str, Any]) -> Iterator[dict[str, Any]]:
        chance = random.Random(body.get("seed"))
        written: list[int] = []
        stops = body.get("stop") or []
        count = body["max_tokens"]
        cached = len(ids) // 16 * 16 if self.caches else 0
        usage = {"prompt_tokens": len(ids), "prompt_tokens_details": {"cached_tokens": cached}}
        while len(written) < count:
            token, probability = self.next_token([*ids, *written], body, chance)
            written.append(token)
            text = "" if token in (EOS,) else text_of([token])
            finish = "stop" if token == EOS else "length" if len(written) == count else None
            stop = next((one for one in stops if text_of(written).endswith(one)), None)
            if stop:
                text, finish = "", "stop"
            choice: dict[str, Any] = {"index": 0, "text": text, "finish_reason": finish, "stop_reason": stop}
            if body.get("return_token_ids"):
                choice["token_ids"] = [token]
            if body.get("logprobs") is not None:
                choice["logprobs"] = _logprobs(token, probability, body)
            yield {"choices": [choice], "usage": usage if finish else None}
            if finish:
                return

    def _chat_pieces(self, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
        if self.chat_thinks:
            yield from self._thinking_pieces(body)
            return
        for number, word in enumerate(("a ", "poem ", "of ", "words")):
            delta = {"content": word} if number else {"role": "assistant", "content": word}
            yield {"id": "x", "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
        yield {"id": "x", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}

    def _thinking_pieces(self, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """A chat with thinking, in pieces of seven characters, within `max_tokens` characters."""
        left = body.get("max_tokens") or 1 << 20
        thinking = "".join(self.thought[at % len(self.thought)] for at in range(self.length))[:left]
        answer = self.answer[: left - len(thinking)]
        for name, text in (("reasoning_content", thinking), ("content", answer)):
            for at in range(0, len(text), 7):
                yield {"id": "x", "choices": [{"index": 0, "delta": {name: text[at : at + 7]}, "finish_reason": None}]}
        finish = "length" if len(answer) < len(self.answer) else "stop"
        yield {"id": "x", "choices": [{"index": 0, "delta": {}, "finish_reason": finish}]}

    async def other(self, request: web.Request) -> web.StreamResponse:
        """`/v1/responses` and `/v1/messages`, with replies that are only as long as a test needs."""
        body = await request.json()
        if not self.endpoints:
            return web.json_response({"detail": "Not Found"}, status=404)
        if not {"input", "messages"} & body.keys():
            return web.json_response({"error": {"message": "a field is missing"}}, status=400)
        kind = request.path.removeprefix("/v1/")
        self.requests.append((kind, {name.lower(): value for name, value in request.headers.items()}, body))
        whole: dict[str, Any] = {"id": "x", "object": "response", "type": "message", "output": [], "content": []}
        if not body.get("stream"):
            return web.json_response(whole)
        last = {"type": "response.completed", "response": whole} if kind == "responses" else {"type": "message_delta"}
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for event in ({"type": "ping"}, last):
            data = json.dumps(event | ({"delta": {}} if event["type"] == "message_delta" else {}))
            await response.write(f"event: {event['type']}\n".encode())
            await asyncio.sleep(self.pause_in_event)
            await response.write(f"data: {data}\n\n".encode())
            trouble = next((one for one in self.troubles if one.kind == kind), None)
            if trouble:
                self.troubles.remove(trouble)
                await self._spoil(trouble, request, response)
                break
        return response

    async def tokenize(self, request: web.Request) -> web.Response:
        body = await request.json()
        text = body.get("prompt")
        if text is None:
            text = "".join(f"{one['role']}: {one['content']}\n" for one in body["messages"]) + "<think>"
        return web.json_response({"tokens": encode(text), "count": len(text)})

    async def detokenize(self, request: web.Request) -> web.Response:
        return web.json_response({"prompt": text_of((await request.json())["tokens"])})

    async def models(self, request: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": MODEL, "owned_by": "vllm", "max_model_len": 8192}]})

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_get("/v1/models", self.models)
        app.router.add_post("/v1/completions", self.completions)
        app.router.add_post("/v1/chat/completions", self.chat)
        app.router.add_post("/v1/responses", self.other)
        app.router.add_post("/v1/messages", self.other)
        app.router.add_post("/tokenize", self.tokenize)
        app.router.add_post("/detokenize", self.detokenize)
        return app


def _joined(pieces: Sequence[dict[str, Any]], kind: str) -> dict[str, Any]:
    """A whole reply from the pieces of a stream."""
    if kind == "chat":
        deltas = [piece["choices"][0]["delta"] for piece in pieces]
        texts = {name: "".join(delta.get(name, "") for delta in deltas) for name in ("content", "reasoning_content")}
        message = {"role": "assistant"} | {name: text for name, text in texts.items() if text or name == "content"}
        finish = pieces[-1]["choices"][0]["finish_reason"]
        return {
            "id": "x",
            "object": "chat.completion",
            "choices": [{"index": 0, "message": message, "finish_reason": finish}],
        }
    choices = [piece["choices"][0] for piece in pieces]
    whole: dict[str, Any] = {**choices[-1], "text": "".join(one["text"] for one in choices)}
    if "token_ids" in whole:
        whole["token_ids"] = [one["token_ids"][0] for one in choices]
    if whole.get("logprobs"):
        names = ("tokens", "token_logprobs", "top_logprobs")
        whole["logprobs"] = {name: [one["logprobs"][name][0] for one in choices] for name in names}
    return {"choices": [whole], "usage": pieces[-1]["usage"]}


def _logprobs(token: int, probability: float, body: dict[str, Any]) -> dict[str, Any]:
    others = [ord(one) for one in "abcdefgh" if ord(one) != token][: max(body["logprobs"] - 1, 0)]
    top = {f"token_id:{token}": math.log(probability)}
    top |= {f"token_id:{one}": math.log(0.5 if one == ord("a") else 0.001) for one in others}
    return {"tokens": [f"token_id:{token}"], "token_logprobs": [math.log(probability)], "top_logprobs": [top]}


def _last(ids: Sequence[int], token: int) -> int:
    return len(ids) - 1 - list(reversed(ids)).index(token)


def encode(text: str) -> list[int]:
    ids: list[int] = []
    while text:
        special = next((one for one in SPECIAL if text.startswith(one)), None)
        ids.append(SPECIAL[special] if special else ord(text[0]))
        text = text[len(special) if special else 1 :]
    return ids


def text_of(ids: Sequence[int]) -> str:
    return "".join(NAMES.get(one) or chr(one) for one in ids)


@contextmanager
def fake_upstream(port: int = 0, fake: FakeUpstream | None = None) -> Iterator[FakeUpstream]:
    """The server, on an event loop of its own."""
    fake = fake or FakeUpstream()
    loop = asyncio.new_event_loop()
    started = threading.Event()

    async def start() -> web.AppRunner:
        # without a time to shut down, so that a test can end it in the middle of a stream
        runner = web.AppRunner(fake.app(), access_log=None, handler_cancellation=True, shutdown_timeout=0.01)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", port, reuse_address=True)
        await site.start()
        fake.port = runner.addresses[0][1]
        fake.address = f"http://127.0.0.1:{fake.port}"
        started.set()
        return runner

    def run() -> None:
        asyncio.set_event_loop(loop)
        runner = loop.run_until_complete(start())
        loop.run_forever()
        loop.run_until_complete(runner.cleanup())
        loop.close()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert started.wait(20)
    try:
        yield fake
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(20)
