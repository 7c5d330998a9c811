"""Replies of `POST /v1/chat/completions`: as a stream of chunks, or as one object."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from typing import Any

import orjson

from cgr.engines.base import Engine
from cgr.records import Token
from cgr.server.faults import ApiError
from cgr.server.generation import (
    AnswerDelta,
    Begun,
    Ended,
    Generation,
    ProbeMade,
    ReasoningDelta,
    ServeEvent,
    Stopped,
)
from cgr.server.result import Result, probe_event

DONE = b"data: [DONE]\n\n"
THOUGHT = b'{"reasoning":%b,"reasoning_content":%b}'
HERE = b"\0"  # where a text goes; JSON has no such byte


class AlignedLogprobs:
    """Log-probabilities of exactly the tokens whose text was sent. Tokens without text wait for one with text."""

    def __init__(self, engine: Engine, top: int) -> None:
        self.engine, self.top = engine, top
        self._held: deque[Token] = deque()
        self._room = 0  # characters that were sent and have no token yet

    async def feed(self, text: str, tokens: Sequence[Token]) -> list[dict[str, Any]]:
        """The entries for this text."""
        self._held += tokens
        self._room += len(text)
        ready: list[Token] = []
        while any(token.text for token in self._held):
            count = next(number for number, token in enumerate(self._held, start=1) if token.text)
            if len(self._held[count - 1].text) > self._room:
                break
            self._room -= len(self._held[count - 1].text)
            ready += [self._held.popleft() for _ in range(count)]
        return [await self._entry(token) for token in ready]

    async def _entry(self, token: Token) -> dict[str, Any]:
        best = sorted(token.top, key=lambda pair: -pair[1])[: self.top]
        texts = [token.text if one == token.id else await self.engine.decode((one,)) for one, _ in best]
        top = [_scored(text, logprob) for text, (_, logprob) in zip(texts, best, strict=True)]
        return _scored(token.text, token.logprob) | {"top_logprobs": top}


def _scored(text: str, logprob: float) -> dict[str, Any]:
    return {"token": text, "logprob": logprob, "bytes": list(text.encode())}


class ChatStream:
    """Events to server-sent events. `mean`: mean thinking tokens without early stops, if known."""

    def __init__(self, request: Generation, engine: Engine, mean: float | None = None) -> None:
        self.request, self.mean = request, mean
        head = orjson.dumps(_head(request, "chat.completion.chunk"))[:-1]
        self._start = b"data: " + head + b',"choices":[{"index":0,"delta":'
        self._empty = b"data: " + head + b',"choices":[],'
        self._first = True
        self._around: list[bytes] = []  # the parts of a chunk around the text of thinking
        self._probes: deque[dict[str, Any]] = deque()
        top = request.top_logprobs
        self._logprobs = None if top is None else AlignedLogprobs(engine, top)

    async def frames(self, event: ServeEvent) -> bytes:
        """What to send for this event; may be nothing."""
        match event:
            case ReasoningDelta(text):
                return self.thought(text)
            case AnswerDelta(text, tokens):
                return await self._answer(text, tokens)
            case ProbeMade(probe) if self.request.stream_probes:
                self._probes.append(probe_event(probe))
            case Ended(result):
                return self._end(result)
            case Begun() | ProbeMade() | Stopped():
                pass
        return b""

    def thought(self, text: str) -> bytes:
        """What to send for this thinking: the same bytes around the text each time, unless something goes with it."""
        quoted = orjson.dumps(text)
        if self._around and not self._probes:
            return quoted.join(self._around)
        chunk = self._chunk(THOUGHT % (quoted, quoted), self._probe())
        self._around = self._chunk(THOUGHT % (HERE, HERE)).split(HERE)
        return chunk

    @staticmethod
    def error(error: ApiError) -> bytes:
        """The end of a stream that failed."""
        return error_frames(error)

    async def _answer(self, text: str, tokens: Sequence[Token]) -> bytes:
        entries = await self._logprobs.feed(text, tokens) if self._logprobs else []
        if not text and not entries:
            return b""
        logprobs = orjson.dumps({"content": entries, "refusal": None}) if entries else b"null"
        return self._chunk(b'{"content":' + orjson.dumps(text) + b"}", self._probe(), logprobs)

    def _probe(self) -> bytes:
        """The next probe that waits for a delta to ride on."""
        return b',"cgr":' + orjson.dumps(self._probes.popleft()) if self._probes else b""

    def _chunk(self, delta: bytes, more: bytes = b"", logprobs: bytes = b"null", finish: bytes = b"null") -> bytes:
        role = b""
        if self._first:
            self._first = False
            role = self._chunk(b'{"role":"assistant","content":""}')
        return b'%b%b%b,"logprobs":%b,"finish_reason":%b}]%b}\n\n' % (role, self._start, delta, logprobs, finish, more)

    def _end(self, result: Result) -> bytes:
        cgr = b',"cgr":' + orjson.dumps(result.cgr(self.mean))
        last = self._chunk(b"{}", cgr, finish=orjson.dumps(result.finish_reason))
        if self.request.include_usage:
            last += self._empty + b'"usage":' + orjson.dumps(result.usage()) + cgr + b"}\n\n"
        return last + DONE


class WholeChat:
    """Collects events into one object."""

    def __init__(self, request: Generation, engine: Engine, mean: float | None = None) -> None:
        self.request, self.mean = request, mean
        self._reasoning: list[str] = []
        self._content: list[str] = []
        self._entries: list[dict[str, Any]] = []
        top = request.top_logprobs
        self._logprobs = None if top is None else AlignedLogprobs(engine, top)

    async def add(self, event: ServeEvent) -> None:
        """Take one event."""
        match event:
            case ReasoningDelta(text):
                self._reasoning.append(text)
            case AnswerDelta(text, tokens):
                self._content.append(text)
                self._entries += await self._logprobs.feed(text, tokens) if self._logprobs else []

    def body(self, result: Result) -> dict[str, Any]:
        """The reply."""
        thinking = "".join(self._reasoning)
        message = {"role": "assistant", "content": "".join(self._content), "reasoning": thinking}
        choice = {
            "index": 0,
            "message": message | {"reasoning_content": thinking},
            "logprobs": {"content": self._entries, "refusal": None} if self._logprobs else None,
            "finish_reason": result.finish_reason,
        }
        usage, cgr = result.usage(), result.cgr(self.mean)
        return _head(self.request, "chat.completion") | {"choices": [choice], "usage": usage, "cgr": cgr}


def error_frames(error: ApiError) -> bytes:
    """The end of a stream that failed: no client can take it for a whole reply."""
    return b"data: " + orjson.dumps(error.body()) + b"\n\n" + DONE


def _head(request: Generation, kind: str) -> dict[str, Any]:
    return {"id": f"chatcmpl-{request.id}", "object": kind, "created": int(time.time()), "model": request.model}
