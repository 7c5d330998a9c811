"""HTTP/1.1 to a server on this machine, and no more of it than such a server needs.

A session on the embedded model asks for 32 tokens at a time, which take 25 ms: what a general client adds to a request
(1.4 ms, measured) is then a twentieth of everything, and a slot of the server idles meanwhile.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

PATIENCE = 10.0  # seconds for a connection


class Lost(Exception):
    """The connection ended too early, or what came over it was not HTTP."""


class HungUp(Lost):
    """It ended before the server said anything, or was never made: asking again may help."""


@dataclass(frozen=True, slots=True)
class Head:
    """What a reply begins with. `length` None: it comes in chunks, or, failing these, lasts as long as the connection."""

    status: int
    length: int | None
    chunked: bool
    keep: bool

    @property
    def is_error(self) -> bool:
        return self.status >= 400


class Reply:
    """A reply whose body is still to be read, once."""

    def __init__(self, head: Head, line: Line) -> None:
        self.head, self.complete, self._line = head, False, line

    async def parts(self) -> AsyncGenerator[bytes, None]:
        if self.head.chunked:
            while size := await self._line.size():
                yield await self._line.exactly(size)
                await self._line.exactly(2)
            await self._line.until(b"\r\n")
        elif self.head.length is not None:
            yield await self._line.exactly(self.head.length)
        else:
            async for part in self._line.rest():
                yield part
        self.complete = True

    async def read(self) -> bytes:
        async with aclosing(self.parts()) as parts:
            return b"".join([part async for part in parts])


class Line(asyncio.Protocol):
    """One connection, and what came over it and was not read yet."""

    def __init__(self) -> None:
        self.ended = False
        self._data = bytearray()
        self._news: asyncio.Future[None] | None = None
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._data += data
        self._wake()

    def connection_lost(self, error: Exception | None) -> None:
        self.ended = True
        self._wake()

    def _wake(self) -> None:
        if self._news and not self._news.done():
            self._news.set_result(None)

    async def _more(self) -> None:
        if self.ended:
            raise Lost("the connection ended in the middle of a reply")
        self._news = asyncio.get_running_loop().create_future()
        await self._news

    async def ask(self, request: bytes) -> Head:
        assert self._transport
        self._transport.write(request)
        while not self._data:
            if self.ended:
                raise HungUp("the server hung up")
            await self._more()
        return read_head(await self.until(b"\r\n\r\n"))

    async def until(self, mark: bytes) -> bytes:
        while (end := self._data.find(mark)) < 0:
            await self._more()
        return self._take(end + len(mark))[:end]

    async def exactly(self, size: int) -> bytes:
        while len(self._data) < size:
            await self._more()
        return self._take(size)

    async def size(self) -> int:
        return _number(await self.until(b"\r\n"), 16)

    async def rest(self) -> AsyncIterator[bytes]:
        while self._data or not self.ended:
            if self._data:
                yield self._take(len(self._data))
            elif not self.ended:
                await self._more()

    def _take(self, size: int) -> bytes:
        taken = bytes(self._data[:size])
        del self._data[:size]
        return taken

    def hang_up(self) -> None:
        self.ended = True
        if self._transport:
            self._transport.abort()


class Loopback:
    """A client of one server, on one event loop; connections are kept for the next request."""

    def __init__(self, address: str, key: str) -> None:
        parts = urlsplit(address)
        self._host, self._port = parts.hostname or "", parts.port or 80
        self._head = (
            f" HTTP/1.1\r\nHost: {parts.netloc}\r\nAuthorization: Bearer {key}\r\n"
            "Content-Type: application/json\r\nContent-Length: "
        ).encode()
        self._kept: list[Line] = []

    @asynccontextmanager
    async def post(self, path: str, body: dict[str, Any]) -> AsyncIterator[Reply]:
        """Leaving the context before the reply was read to its end hangs up."""
        data = json.dumps(body, separators=(",", ":")).encode()
        line = await self._line()
        reply = None
        try:
            head = await line.ask(b"POST %s%s%d\r\n\r\n%s" % (path.encode(), self._head, len(data), data))
            reply = Reply(head, line)
            yield reply
        finally:
            if reply and reply.complete and reply.head.keep and not line.ended:
                self._kept.append(line)
            else:
                line.hang_up()

    async def _line(self) -> Line:
        while self._kept:
            line = self._kept.pop()
            if not line.ended:
                return line
        try:
            async with asyncio.timeout(PATIENCE):
                _, line = await asyncio.get_running_loop().create_connection(Line, self._host, self._port)
        except OSError as error:  # a time-out is one
            raise HungUp("no connection") from error
        return line

    async def close(self) -> None:
        """Give the transports the turn of the loop that they need to close."""
        for line in self._kept:
            line.hang_up()
        self._kept.clear()
        await asyncio.sleep(0)


def read_head(data: bytes) -> Head:
    first, *lines = data.decode("latin-1").split("\r\n")
    version, _, rest = first.partition(" ")
    if not version.startswith("HTTP/1."):
        raise Lost("it does not speak HTTP")
    fields = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    length = fields.get("content-length")
    return Head(
        status=_number(rest[:3].encode(), 10),
        length=None if length is None else _number(length.encode(), 10),
        chunked=fields.get("transfer-encoding", "").lower() == "chunked",
        keep=fields.get("connection", "").lower() != "close",
    )


def _number(text: bytes, base: int) -> int:
    try:
        number = int(text.split(b";")[0], base)
    except ValueError as error:
        raise Lost("it does not speak HTTP") from error
    if number < 0:
        raise Lost("it does not speak HTTP")
    return number
