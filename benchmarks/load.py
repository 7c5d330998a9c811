"""Many streams at once from one HTTP server, and when their tokens came. It looks at bytes only, and so costs little."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass
from statistics import fmean
from typing import Any, cast
from urllib.parse import urlsplit

END = b"[DONE]"
EVENT = b"data: "
STAGGER = 0.02  # seconds over which the streams begin


@dataclass(frozen=True, slots=True)
class Streamed:
    """One stream: seconds from the request to the first and to the last event, and the number of events."""

    first: float
    last: float
    events: int


@dataclass(frozen=True, slots=True)
class Load:
    """What many streams took."""

    streams: tuple[Streamed, ...]

    @property
    def last(self) -> float:
        """Mean seconds to the last token."""
        return fmean(one.last for one in self.streams)

    @property
    def first(self) -> float:
        """Mean seconds to the first token."""
        return fmean(one.first for one in self.streams)

    @property
    def events(self) -> int:
        """Events of all streams."""
        return sum(one.events for one in self.streams)


class _Reader(asyncio.Protocol):
    """Sends one request and reads the reply to the end of its stream."""

    def __init__(self, request: bytes) -> None:
        self.request = request
        self.done: asyncio.Future[Streamed] = asyncio.get_running_loop().create_future()
        self._tail, self._first, self._events = b"", 0.0, 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport, self._began = cast(asyncio.Transport, transport), time.perf_counter()
        self._transport.write(self.request)

    def data_received(self, data: bytes) -> None:
        now = time.perf_counter()
        self._events += data.count(EVENT)
        if not self._first and EVENT in data:
            self._first = now
        self._tail = (self._tail + data)[-64:] if len(data) < len(END) else data[-64:]
        if END in self._tail and not self.done.done():
            self.done.set_result(Streamed(self._first - self._began, now - self._began, self._events - 1))
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done.done():
            self.done.set_exception(ConnectionError(f"a stream ended early: {self._tail!r}"))


async def stream(address: str, path: str, body: dict[str, Any], delay: float = 0.0, key: str | None = None) -> Streamed:
    """One stream, begun after so many seconds."""
    await asyncio.sleep(delay)
    where, data = urlsplit(address), json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nhost: {where.netloc}\r\ncontent-type: application/json\r\n"
    head += f"authorization: Bearer {key}\r\n" if key else ""
    request = f"{head}content-length: {len(data)}\r\n\r\n".encode() + data
    loop = asyncio.get_running_loop()
    _, reader = await loop.create_connection(lambda: _Reader(request), where.hostname or "", where.port or 80)
    return await reader.done


async def load(address: str, path: str, body: dict[str, Any], streams: int, key: str | None = None) -> Load:
    """This many streams of the same request at once."""
    delays = (number * STAGGER / streams for number in range(streams))
    return Load(tuple(await asyncio.gather(*(stream(address, path, body, delay, key) for delay in delays))))
