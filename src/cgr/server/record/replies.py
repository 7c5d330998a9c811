"""Reads the thinking in an upstream's reply, from a copy of the bytes that went to the client."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from cgr.server.faults import MESSAGES_PATH

MAX_BYTES = 8 << 20  # of a reply; the rest of a longer one is not kept
RESPONSES_PATH = "/v1/responses"
STREAM_END = b"[DONE]"
FULL_RESPONSES = ("response.completed", "response.incomplete")
CUT_SHORT = ("length", "max_tokens", "max_output_tokens")
Json = Mapping[str, Any]


class ReplyCopy:
    """The bytes of a reply, as far as they are kept."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self.size = 0

    def add(self, data: bytes) -> None:
        """Keep these bytes."""
        self.size += len(data)
        if self.size <= MAX_BYTES:
            self._parts.append(data)

    @property
    def data(self) -> bytes | None:
        """All bytes; None if they are too many."""
        return b"".join(self._parts) if self.size <= MAX_BYTES else None


@dataclass(frozen=True, slots=True)
class ReplyText:
    """The thinking and the answer of a reply; `cut`: it ended at a limit of tokens."""

    thinking: str
    answer: str
    cut: bool

    @property
    def ended(self) -> bool:
        """Whether the model ended its thinking: an answer follows it, or the reply was not cut."""
        return bool(self.answer) or not self.cut


def read_reply(path: str, data: bytes, tags: tuple[str, str]) -> ReplyText | None:
    """The texts of a reply; None if it is an error, is not complete, or has another form. `tags`: the think tags, for an
    upstream that leaves the thinking in the content."""
    try:
        bodies = [orjson.loads(one) for one in _json_texts(data)]
        found = _reader(path)(bodies)
    except (orjson.JSONDecodeError, KeyError, IndexError, TypeError, AttributeError):
        return None
    return _split(found, tags) if found else None


def _json_texts(data: bytes) -> Iterator[bytes]:
    """The one body, or the data of each event of a stream."""
    if data.lstrip()[:1] == b"{":
        yield data
        return
    for line in data.split(b"\n"):
        if line.startswith(b"data:") and (text := line[5:].strip()) != STREAM_END:
            yield text


def _reader(path: str) -> Any:
    return {RESPONSES_PATH: _from_responses, MESSAGES_PATH: _from_messages}.get(path, _from_chat)


def _from_chat(bodies: list[Json]) -> ReplyText | None:
    choices = [body["choices"][0] for body in bodies if body.get("choices")]
    parts = [choice.get("message") or choice.get("delta") or {} for choice in choices]
    finish = next((choice["finish_reason"] for choice in choices if choice.get("finish_reason")), None)
    if finish is None:
        return None
    thinking = "".join(part.get("reasoning") or part.get("reasoning_content") or "" for part in parts)
    return ReplyText(thinking, "".join(part.get("content") or "" for part in parts), finish in CUT_SHORT)


def _from_responses(bodies: list[Json]) -> ReplyText | None:
    whole = next((body["response"] for body in bodies if body.get("type") in FULL_RESPONSES), bodies[0])
    if whole.get("status") not in ("completed", "incomplete"):
        return None
    texts = {"reasoning": "", "message": ""}
    for item in whole["output"]:
        parts = item.get("content") or item.get("summary") or ()
        if item["type"] in texts:
            texts[item["type"]] += "".join(part.get("text") or "" for part in parts)
    return ReplyText(texts["reasoning"], texts["message"], whole["status"] == "incomplete")


def _from_messages(bodies: list[Json]) -> ReplyText | None:
    texts, stop = {"thinking": "", "text": ""}, None
    for body in bodies:
        stop = (body.get("delta") or body).get("stop_reason") or stop
        for block in (*(body.get("content") or ()), body.get("content_block") or {}, body.get("delta") or {}):
            for name in texts:
                texts[name] += block.get(name) or ""
    return ReplyText(texts["thinking"], texts["text"], stop in CUT_SHORT) if stop else None


def _split(found: ReplyText, tags: tuple[str, str]) -> ReplyText:
    """The same with the thinking taken out of the content, where an upstream leaves it there."""
    opening, closing = tags
    text = found.answer.lstrip()
    if found.thinking or not (text.startswith(opening) or closing in text):
        return found
    thinking, end, answer = text.removeprefix(opening).partition(closing)
    return ReplyText(thinking, answer, found.cut or not end)
