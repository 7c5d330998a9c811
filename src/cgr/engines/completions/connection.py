"""HTTP to one server that may fail at any moment. One attempt is made here; who tries again is pool.py.

What may pass (time-outs, resets, 429, 5xx, half a stream, malformed JSON) is a `Fault`; what will not is an error at once.
"""

from __future__ import annotations

import email.utils
import json
import random
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Any

from cgr.engines.completions.dialect import BrokenOff
from cgr.engines.completions.http1 import Client, Head, Lost, Reply, Silent
from cgr.engines.completions.wire import failure
from cgr.errors import CgrError, EngineError, UsageError

PASSING = {408, 425, 429, 500, 502, 503, 504}
REFUSED = {401, 403}
AT_ONCE = 2  # further tries without a pause


class Fault(Exception):
    """Something that may pass. `wait`: how long the server asks to be left alone; `away`: it could not be reached."""

    def __init__(self, what: str, wait: float | None = None, *, away: bool = False) -> None:
        super().__init__(what)
        self.what, self.wait, self.away = what, wait, away


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to wait, in seconds, and how often to try again without a single token in between. `first` is for the first
    token, which may have to queue; `stall` for each that follows it."""

    tries: int = 6
    pause: float = 0.5
    longest: float = 30.0
    connect: float = 10.0
    first: float = 600.0
    stall: float = 60.0

    def delay(self, attempt: int, wait: float | None = None) -> float:
        """Exponential with jitter, so that many who failed together do not come back together; what the server asked for
        is kept to, as far as patience goes."""
        backed_off = self.pause * 2**attempt * (1 + random.random() / 2)
        return float(min(max(backed_off, wait or 0.0), self.longest))


class Link:
    """A client of one server, on one event loop. `most`: requests in flight at most; further ones wait for a connection."""

    def __init__(self, address: str, key: str | None, patience: Patience, most: int) -> None:
        self.address, self.patience = address, patience
        self.load = 0
        self.aside_until, self.failures = 0.0, 0
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._client = Client(address, headers, most=most, connect=patience.connect)

    @property
    def aside(self) -> bool:
        return time.monotonic() < self.aside_until

    def well(self) -> None:
        self.failures, self.aside_until = 0, 0.0

    def ill(self, fault: Fault) -> None:
        """Set aside for a while, longer each time."""
        self.failures += 1
        self.aside_until = time.monotonic() + self.patience.delay(self.failures, fault.wait)

    async def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        async with self._asked(path, body) as reply:
            return read_reply(reply.head, await reply.read())

    @asynccontextmanager
    async def _asked(self, path: str, body: dict[str, Any]) -> AsyncIterator[Reply]:
        try:
            async with self._client.post(path, body, tries=1 + AT_ONCE, patience=self.patience.first) as reply:
                yield reply
        except Lost as error:
            raise Fault(str(error), away=not isinstance(error, Silent)) from error

    @asynccontextmanager
    async def events(self, path: str, body: dict[str, Any]) -> AsyncIterator[AsyncIterator[dict[str, Any]]]:
        """The events of a stream. Leaving the context early hangs up, which cancels it on the server."""
        async with self._asked(path, body) as reply:
            if reply.head.is_error:
                read_reply(reply.head, await reply.read())
            async with aclosing(self._events(reply)) as events:
                yield events

    async def _events(self, reply: Reply) -> AsyncGenerator[dict[str, Any], None]:
        """An event is a line that says `data:`. The first may take long; a stall after that is a fault."""
        rest = b""
        async with aclosing(reply.parts()) as parts:
            async for part in parts:
                *lines, rest = (rest + part).split(b"\n")
                for line in lines:
                    event = read_line(line.strip())
                    if event is not None:
                        reply.patience = self.patience.stall
                        yield event

    async def close(self) -> None:
        await self._client.close()


def read_line(line: bytes) -> dict[str, Any] | None:
    if line.startswith(b"error:"):
        raise refusal(parsed(line[6:]), 500)
    if not line.startswith(b"data:"):
        return None
    data = line[5:].strip()
    if data == b"[DONE]":
        return None
    event = parsed(data)
    if "error" in event:
        raise refusal(event, _code(event))
    return event


def read_reply(head: Head, content: bytes) -> dict[str, Any]:
    if head.is_error:
        raise refusal(_told(head, content), head.status, retry_after(head))
    data = parsed(content)
    if "error" in data:
        raise refusal(data, _code(data))
    return data


def parsed(data: bytes) -> dict[str, Any]:
    try:
        value = json.loads(data)
    except ValueError as error:
        raise BrokenOff("it sent something that is not JSON") from error
    if not isinstance(value, dict):
        raise BrokenOff("it sent JSON that is not a completion's")
    return value


def _told(head: Head, content: bytes) -> dict[str, Any]:
    """What an error says, be it JSON or not."""
    try:
        return parsed(content)
    except BrokenOff:
        return {"error": content.decode("utf-8", errors="replace")[:200] or f"{head.status}"}


def _code(event: dict[str, Any]) -> int:
    error = event.get("error")
    code = error.get("code") if isinstance(error, dict) else None
    return code if isinstance(code, int) else 500


def refusal(data: dict[str, Any], status: int, wait: float | None = None) -> Fault | CgrError:
    told = failure(data)
    if status in REFUSED:
        return UsageError(f"The server wants another key: {told.message.removeprefix('The server refused: ')}",
                          "Set CGR_API_KEY to a key that it knows.")  # fmt: skip
    if status in PASSING:
        return Fault(f"it answered {status}: {told.message.removeprefix('The server refused: ').rstrip('.')}", wait)
    return told


def retry_after(head: Head) -> float | None:
    """In seconds, or as a date."""
    value = head.fields.get("retry-after", "")
    if value.replace(".", "", 1).isdigit():
        return float(value)
    try:
        return max(email.utils.parsedate_to_datetime(value).timestamp() - time.time(), 0.0) if value else None
    except ValueError:
        return None


def given_up(address: str, fault: str, tries: int) -> EngineError:
    return EngineError(
        f"The server at {address} failed {tries} times in a row: {fault}.",
        "See to the server; nothing that failed was counted as an answer, and the same command can be given again.",
    )
