"""Replies of `POST /v1/responses`: a reasoning item and a message, as a stream of events or as one object."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from cgr.engines.base import Engine
from cgr.records import Token
from cgr.server.chat import AlignedLogprobs
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


class ResponseBuilder:
    """Collects events into the response object."""

    def __init__(self, request: Generation, engine: Engine, mean: float | None = None) -> None:
        self.request, self.mean, self.created = request, mean, int(time.time())
        self.reasoning: list[str] = []
        self.text: list[str] = []
        self.entries: list[dict[str, Any]] = []
        top = request.top_logprobs
        self._logprobs = None if top is None else AlignedLogprobs(engine, top)

    async def add(self, event: ServeEvent) -> None:
        """Take one event."""
        match event:
            case ReasoningDelta(text):
                self.reasoning.append(text)
            case AnswerDelta(text, tokens):
                await self.answer(text, tokens)

    async def answer(self, text: str, tokens: Sequence[Token]) -> list[dict[str, Any]]:
        """Take a piece of the answer; returns its log-probabilities."""
        self.text.append(text)
        entries = await self._logprobs.feed(text, tokens) if self._logprobs else []
        self.entries += entries
        return entries

    def body(self, result: Result) -> dict[str, Any]:
        """The finished response."""
        complete = result.finish_reason == "stop"
        status = "completed" if complete else "incomplete"
        output = ([self.reasoning_item("completed")] if self.reasoning else []) + [self.message_item(status)]
        return self.response(status, output) | {
            "completed_at": int(time.time()) if complete else None,
            "incomplete_details": None if complete else {"reason": "max_output_tokens"},
            "usage": usage(result),
            "cgr": result.cgr(self.mean),
        }

    def response(self, status: str, output: Sequence[Mapping[str, Any]] = ()) -> dict[str, Any]:
        """The response object, with what is known from the start."""
        request = self.request
        return {
            "id": f"resp_{request.id}",
            "object": "response",
            "created_at": self.created,
            "status": status,
            "background": False,
            "error": None,
            "incomplete_details": None,
            "instructions": None,
            "max_output_tokens": request.max_tokens,
            "model": request.model,
            "output": list(output),
            "parallel_tool_calls": True,
            "previous_response_id": None,
            "temperature": request.settings.temperature,
            "text": {"format": {"type": "text"}},
            "tool_choice": "auto",
            "tools": [],
            "top_logprobs": request.top_logprobs or 0,
            "top_p": request.settings.top_p,
            "truncation": "disabled",
            "usage": None,
            "metadata": {},
            **request.repeated,
            "store": False,
        }

    def reasoning_item(self, status: str | None = None) -> dict[str, Any]:
        """The thinking, as text or as its own summary. Without a status: as it begins."""
        part = self.reasoning_part("".join(self.reasoning))
        parts = [part] if status else []
        shown = {"summary": parts} if self.request.shown == "summary" else {"summary": [], "content": parts}
        return {"id": f"rs_{self.request.id}", "type": "reasoning", "status": status or "in_progress", **shown}

    def reasoning_part(self, text: str) -> dict[str, Any]:
        """The only part of the reasoning item."""
        return {"type": "summary_text" if self.request.shown == "summary" else "reasoning_text", "text": text}

    def message_item(self, status: str | None = None) -> dict[str, Any]:
        """The answer. Without a status: as it begins."""
        parts = [text_part("".join(self.text), self.entries)] if status else []
        head = {"id": f"msg_{self.request.id}", "type": "message", "role": "assistant"}
        return head | {"status": status or "in_progress", "content": parts}


def text_part(text: str, entries: Sequence[Mapping[str, Any]] = ()) -> dict[str, Any]:
    """The only part of the message."""
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": list(entries)}


def usage(result: Result) -> dict[str, Any]:
    """The token counts in the words of this API."""
    given = result.usage()
    return {
        "input_tokens": given["prompt_tokens"],
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": given["completion_tokens"],
        "output_tokens_details": given["completion_tokens_details"],
        "total_tokens": given["total_tokens"],
    }


class ResponseStream:
    """Events to server-sent events. `mean`: mean thinking tokens without early stops, if known."""

    def __init__(self, request: Generation, engine: Engine, mean: float | None = None) -> None:
        self.request, self.built = request, ResponseBuilder(request, engine, mean)
        self._number = 0
        self._probes: deque[dict[str, Any]] = deque()
        self._open = ""  # the item that is being written
        self._index = 0
        self._summary = request.shown == "summary"

    async def frames(self, event: ServeEvent) -> bytes:
        """What to send for this event; may be nothing."""
        match event:
            case Begun():
                return self._event("response.created", response=self.built.response("in_progress")) + self._event(
                    "response.in_progress", response=self.built.response("in_progress")
                )
            case ReasoningDelta(text):
                return self.thought(text)
            case Stopped():
                return self._end_reasoning()
            case AnswerDelta(text, tokens):
                return await self._answer(text, tokens)
            case ProbeMade(probe) if self.request.stream_probes:
                self._probes.append(probe_event(probe))
            case Ended(result):
                return self._end(result)
        return b""

    def thought(self, text: str) -> bytes:
        """What to send for this thinking."""
        self.built.reasoning.append(text)
        return self._begin("reasoning") + self._reasoning("delta", delta=text, **self._probe())

    def error(self, error: ApiError) -> bytes:
        """The end of a stream that failed: a failed response, then an error that clients raise."""
        failed = self.built.response("failed") | {"error": {"code": "server_error", "message": error.message}}
        body = error.body()
        return self._event("response.failed", response=failed) + self._event(
            "error", code=error.code or "server_error", message=error.message, param=error.param, **body
        )

    def _event(self, kind: str, **fields: Any) -> bytes:
        data = orjson.dumps({"type": kind, "sequence_number": self._number, **fields})
        self._number += 1
        return b"event: " + kind.encode() + b"\ndata: " + data + b"\n\n"

    def _probe(self) -> dict[str, Any]:
        """The next probe that waits for a delta to ride on."""
        return {"cgr": self._probes.popleft()} if self._probes else {}

    # Items

    def _place(self) -> dict[str, Any]:
        """Where the part that is being written stands."""
        prefix = "rs" if self._open == "reasoning" else "msg"
        part = "summary_index" if self._open == "reasoning" and self._summary else "content_index"
        return {"item_id": f"{prefix}_{self.request.id}", "output_index": self._index, part: 0}

    def _begin(self, kind: str) -> bytes:
        if self._open == kind:
            return b""
        self._open = kind
        reasoning = kind == "reasoning"
        item = self.built.reasoning_item() if reasoning else self.built.message_item()
        part = self.built.reasoning_part("") if reasoning else text_part("")
        added = self._event("response.output_item.added", output_index=self._index, item=item)
        return added + self._event(f"response.{self._part_name()}.added", **self._place(), part=part)

    def _part_name(self) -> str:
        return "reasoning_summary_part" if self._open == "reasoning" and self._summary else "content_part"

    def _reasoning(self, what: str, **fields: Any) -> bytes:
        name = "reasoning_summary_text" if self._summary else "reasoning_text"
        return self._event(f"response.{name}.{what}", **self._place(), **fields)

    def _end_reasoning(self) -> bytes:
        if self._open != "reasoning":
            return b""
        text = "".join(self.built.reasoning)
        ended = self._reasoning("done", text=text)
        ended += self._event(f"response.{self._part_name()}.done", **self._place(), part=self.built.reasoning_part(text))
        return ended + self._end_item(self.built.reasoning_item("completed"))

    def _end_item(self, item: Mapping[str, Any]) -> bytes:
        self._index, self._open = self._index + 1, ""
        return self._event("response.output_item.done", output_index=self._index - 1, item=item)

    async def _answer(self, text: str, tokens: Sequence[Token]) -> bytes:
        entries = await self.built.answer(text, tokens)
        if not text and not entries:
            return b""
        begun = self._begin("message")
        return begun + self._event(
            "response.output_text.delta", **self._place(), delta=text, logprobs=entries, **self._probe()
        )

    def _end(self, result: Result) -> bytes:
        body = self.built.body(result)
        frames, text, entries = self._begin("message"), "".join(self.built.text), self.built.entries
        frames += self._event("response.output_text.done", **self._place(), text=text, logprobs=entries)
        frames += self._event("response.content_part.done", **self._place(), part=text_part(text, entries))
        frames += self._end_item(body["output"][-1])
        return frames + self._event(f"response.{body['status']}", response=body)
