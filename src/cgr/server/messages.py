"""Replies of `POST /v1/messages`: a thinking block and a text block, as a stream of events or as one object."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

import orjson

from cgr.engines.base import Engine
from cgr.server.faults import ApiError, messages_error
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


class WholeMessage:
    """Collects events into one object."""

    def __init__(self, request: Generation, engine: Engine, mean: float | None = None) -> None:
        self.request, self.mean = request, mean
        self._thinking: list[str] = []
        self._text: list[str] = []

    async def add(self, event: ServeEvent) -> None:
        """Take one event."""
        match event:
            case ReasoningDelta(text):
                self._thinking.append("" if self.request.shown == "omitted" else text)
            case AnswerDelta(text):
                self._text.append(text)

    def body(self, result: Result) -> dict[str, Any]:
        """The reply."""
        thinking = [_block("thinking", "".join(self._thinking))] if self._thinking else []
        content = [*thinking, _block("text", "".join(self._text))]
        return _head(self.request) | {
            "content": content,
            **_stop(result),
            "usage": _usage(result),
            "cgr": result.cgr(self.mean),
        }


class MessageStream:
    """Events to server-sent events. `mean`: mean thinking tokens without early stops, if known."""

    def __init__(self, request: Generation, engine: Engine, mean: float | None = None) -> None:
        self.request, self.mean = request, mean
        self._probes: deque[dict[str, Any]] = deque()
        self._open = ""  # the block that is being written
        self._index = 0

    async def frames(self, event: ServeEvent) -> bytes:
        """What to send for this event; may be nothing."""
        match event:
            case Begun(prompt_tokens):
                begun: dict[str, Any] = {
                    "content": [],
                    "stop_reason": None,
                    "stop_sequence": None,
                    "usage": _counts(prompt_tokens, 0),
                }
                return _event("message_start", message=_head(self.request) | begun)
            case ReasoningDelta(text):
                return self.thought(text)
            case Stopped():
                return self._end_block("thinking")
            case AnswerDelta(text) if text:
                return self._begin("text") + self._delta("text", text)
            case ProbeMade(probe) if self.request.stream_probes:
                self._probes.append(probe_event(probe))
            case Ended(result):
                return self._end(result)
        return b""

    @staticmethod
    def error(error: ApiError) -> bytes:
        """The end of a stream that failed."""
        return _event(**messages_error(error))

    def thought(self, text: str) -> bytes:
        """What to send for this thinking."""
        begun = self._begin("thinking")
        return begun if self.request.shown == "omitted" else begun + self._delta("thinking", text)

    def _begin(self, kind: str) -> bytes:
        if self._open == kind:
            return b""
        self._open = kind
        return _event("content_block_start", index=self._index, content_block=_block(kind, ""))

    def _delta(self, kind: str, text: str) -> bytes:
        probe = {"cgr": self._probes.popleft()} if self._probes else {}
        return _event("content_block_delta", index=self._index, delta={"type": f"{kind}_delta", kind: text}, **probe)

    def _end_block(self, kind: str) -> bytes:
        if self._open != kind:
            return b""
        self._open, self._index = "", self._index + 1
        return _event("content_block_stop", index=self._index - 1)

    def _end(self, result: Result) -> bytes:
        frames = self._begin("text") + self._end_block("text")
        last = {"delta": _stop(result), "usage": _usage(result), "cgr": result.cgr(self.mean)}
        return frames + _event("message_delta", **last) + _event("message_stop")


def _event(type: str, **fields: Any) -> bytes:
    return b"event: " + type.encode() + b"\ndata: " + orjson.dumps({"type": type, **fields}) + b"\n\n"


def _head(request: Generation) -> dict[str, Any]:
    return {"id": f"msg_{request.id}", "type": "message", "role": "assistant", "model": request.model}


def _block(kind: str, text: str) -> dict[str, Any]:
    """A block of the content. Thinking is not signed: it is not read again in a later turn."""
    return {"type": kind, kind: text, **({"signature": ""} if kind == "thinking" else {})}


def _stop(result: Result) -> Mapping[str, Any]:
    """Why the text ended. Of several stop sequences it is not known which one ended it."""
    answer, stops = result.outcome.answer, result.request.sampling.stop
    if answer is not None and answer.stop == "stop":
        return {"stop_reason": "stop_sequence", "stop_sequence": stops[0] if len(stops) == 1 else None}
    return {"stop_reason": "max_tokens" if result.finish_reason == "length" else "end_turn", "stop_sequence": None}


def _counts(prompt: int, output: int) -> dict[str, Any]:
    return {
        "input_tokens": prompt,
        "output_tokens": output,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
    }


def _usage(result: Result) -> dict[str, Any]:
    output = result.thinking_tokens + result.answer_tokens
    details = {"output_tokens_details": {"thinking_tokens": result.thinking_tokens}}
    return _counts(result.prompt_tokens, output) | details
