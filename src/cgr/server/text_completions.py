"""Replies of `POST /v1/completions`. The text is what the model writes after the prompt: thinking, end tag, answer."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from typing import Any

import orjson

from cgr.engines.base import Engine
from cgr.server.chat import DONE, error_frames
from cgr.server.faults import ApiError
from cgr.server.generation import AnswerDelta, Ended, Generation, ProbeMade, ReasoningDelta, ServeEvent, Stopped
from cgr.server.result import Result, probe_event


class CompletionStream:
    """Events to server-sent events. `mean`: mean thinking tokens without early stops, if known."""

    def __init__(self, request: Generation, engine: Engine, mean: float | None = None) -> None:
        self.request, self.mean, self.close_tag = request, mean, engine.info.close_tag
        self._head = _head(request)
        self._probes: deque[dict[str, Any]] = deque()

    async def frames(self, event: ServeEvent) -> bytes:
        """What to send for this event; may be nothing."""
        match event:
            case ReasoningDelta(text) | AnswerDelta(text):
                return self.thought(text)
            case ProbeMade(probe) if self.request.stream_probes:
                self._probes.append(probe_event(probe))
            case Stopped():
                return self._chunk(self.close_tag)
            case Ended(result):
                return self._end(result)
        return b""

    def thought(self, text: str) -> bytes:
        """What to send for this thinking; an answer looks the same."""
        return self._chunk(text, more={"cgr": self._probes.popleft()} if self._probes else {})

    @staticmethod
    def error(error: ApiError) -> bytes:
        """The end of a stream that failed."""
        return error_frames(error)

    def _chunk(self, text: str, finish: str | None = None, more: Mapping[str, Any] | None = None) -> bytes:
        choice = {"index": 0, "text": text, "logprobs": None, "finish_reason": finish}
        return b"data: " + orjson.dumps(self._head | {"choices": [choice], **(more or {})}) + b"\n\n"

    def _end(self, result: Result) -> bytes:
        cgr = result.cgr(self.mean)
        last = self._chunk("", result.finish_reason, {"cgr": cgr})
        if self.request.include_usage:
            last += b"data: " + orjson.dumps(self._head | {"choices": [], "usage": result.usage(), "cgr": cgr}) + b"\n\n"
        return last + DONE


class WholeCompletion:
    """Collects events into one object."""

    def __init__(self, request: Generation, engine: Engine, mean: float | None = None) -> None:
        self.request, self.mean, self.close_tag = request, mean, engine.info.close_tag
        self._texts: list[str] = []

    async def add(self, event: ServeEvent) -> None:
        """Take one event."""
        match event:
            case ReasoningDelta(text) | AnswerDelta(text):
                self._texts.append(text)
            case Stopped():
                self._texts.append(self.close_tag)

    def body(self, result: Result) -> dict[str, Any]:
        """The reply."""
        choice = {"index": 0, "text": "".join(self._texts), "logprobs": None, "finish_reason": result.finish_reason}
        return _head(self.request) | {"choices": [choice], "usage": result.usage(), "cgr": result.cgr(self.mean)}


def _head(request: Generation) -> dict[str, Any]:
    return {"id": f"cmpl-{request.id}", "object": "text_completion", "created": int(time.time()), "model": request.model}
