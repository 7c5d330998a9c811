"""HTTP/1.1, and no more of it than a completions server needs: JSON out, a document or a stream back, connections kept.

It is here for its speed. A session on the embedded model asks for 32 tokens at a time, which take 25 ms: by httpx the
client did 8% of all computing, by this 2%. And a server that streams 5,000 tokens a second sends as many
events: at 100 to 200 microseconds each, a client by httpx would fill a core.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

MUCH = 1 << 20  # bytes that were received and not read, from which on the server is made to wait


class Lost(Exception):
    """The connection ended too early, or what came over it was not HTTP."""


class Silent(Lost):
    """The server said nothing for too long."""


class HungUp(Lost):
    """The connection ended before the server said anything: asking again may help."""


class NoConnection(HungUp):
    """It was never made."""


@dataclass(frozen=True, slots=True)
class Head:
    """What a reply begins with; names of fields in small letters. A body of no known length comes in chunks, or, failing
    these, lasts as long as the connection."""

    status: int
    fields: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_error(self) -> bool:
        return self.status >= 400

    @property
    def chunked(self) -> bool:
        return self.fields.get("transfer-encoding", "").lower() == "chunked"

    @property
    def keep(self) -> bool:
        return self.fields.get("connection", "").lower() != "close"

    @property
    def length(self) -> int | None:
        return _number(self.fields["content-length"].encode(), 10) if "content-length" in self.fields else None


class Reply:
    """A reply whose body is still to be read, once."""

    def __init__(self, head: Head, line: Line) -> None:
        self.head, self.complete, self._line = head, False, line

    @property
    def patience(self) -> float | None:
        """Seconds that the server may say nothing, from here on."""
        return self._line.patience

    @patience.setter
    def patience(self, seconds: float | None) -> None:
        self._line.patience = seconds

    async def parts(self) -> AsyncGenerator[bytes, None]:
        length = self.head.length
        if self.head.chunked:
            while size := await self._line.size():
                yield (await self._line.exactly(size + 2))[:-2]
            while await self._line.until(b"\r\n"):
                pass  # trailers
        elif length is not None:
            yield await self._line.exactly(length)
        else:
            async for part in self._line.rest():
                yield part
        self.complete = True

    async def read(self) -> bytes:
        async with aclosing(self.parts()) as parts:
            return b"".join([part async for part in parts])


class Line(asyncio.Protocol):
    """One connection, and what came over it and was not read yet. `patience`: seconds that the server may say nothing."""

    def __init__(self) -> None:
        self.ended = False
        self.patience: float | None = None
        self._data = bytearray()
        self._news: asyncio.Future[None] | None = None
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._data += data
        if len(self._data) > MUCH and self._transport:
            self._transport.pause_reading()
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
        if self._transport:
            self._transport.resume_reading()
        loop = asyncio.get_running_loop()
        self._news = loop.create_future()
        alarm = loop.call_later(self.patience, self._give_up) if self.patience is not None else None
        try:
            await self._news
        finally:
            if alarm:
                alarm.cancel()

    def _give_up(self) -> None:
        if self._news and not self._news.done():
            self._news.set_exception(Silent(f"it said nothing for {self.patience:g} seconds"))

    async def ask(self, request: bytes) -> Head:
        assert self._transport
        self._transport.write(request)
        while not self._data:
            if self.ended:
                raise HungUp("it hung up")
            await self._more()
        head = read_head(await self.until(b"\r\n\r\n"))
        while head.status < 200:  # more is to come
            head = read_head(await self.until(b"\r\n\r\n"))
        return head

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


class Client:
    """Of one server, on one event loop. `most`: requests in flight at most, further ones wait; `connect`: seconds that a
    connection may take."""

    def __init__(self, address: str, headers: Mapping[str, str], *, most: int | None = None, connect: float = 10.0) -> None:
        parts = urlsplit(address)
        self._tls = ssl.create_default_context() if parts.scheme == "https" else None
        self._host, self._port = parts.hostname or "", parts.port or (443 if self._tls else 80)
        self._root, self._connect = parts.path.rstrip("/"), connect
        told = {
            "Host": parts.netloc.rpartition("@")[2],
            "Connection": "keep-alive",
            "Content-Type": "application/json",
            **headers,
        }
        self._head = "".join(f"{name}: {value}\r\n" for name, value in told.items())
        self._room: AbstractAsyncContextManager[Any] = asyncio.Semaphore(most) if most else nullcontext()
        self._kept: list[Line] = []

    @asynccontextmanager
    async def post(
        self, path: str, body: dict[str, Any], *, tries: int = 1, pause: float = 0.0, patience: float | None = None
    ) -> AsyncIterator[Reply]:
        """Leaving the context before the reply was read to its end hangs up, which cancels it. A server that hung up before
        it said anything is asked again, as a kept connection may be closed just as it is used; with a `pause`, growing,
        also one that could not be reached."""
        data = json.dumps(body, separators=(",", ":")).encode()
        head = f"POST {self._root}{path} HTTP/1.1\r\n{self._head}Content-Length: {len(data)}\r\n\r\n"
        async with self._room:
            line, heard = await self._ask(head.encode() + data, tries, pause, patience)
            reply = Reply(heard, line)
            try:
                yield reply
            finally:
                if reply.complete and heard.keep and not line.ended:
                    self._kept.append(line)
                else:
                    line.hang_up()

    async def _ask(self, request: bytes, tries: int, pause: float, patience: float | None) -> tuple[Line, Head]:
        for attempt in range(1, tries + 1):
            try:
                return await self._ask_once(request, patience)
            except HungUp as error:
                if attempt == tries or (isinstance(error, NoConnection) and not pause):
                    raise
                await asyncio.sleep(pause * 2 ** (attempt - 1))
        raise AssertionError

    async def _ask_once(self, request: bytes, patience: float | None) -> tuple[Line, Head]:
        line = await self._line()
        line.patience = patience
        try:
            return line, await line.ask(request)
        except BaseException:
            line.hang_up()
            raise

    async def _line(self) -> Line:
        while self._kept:
            line = self._kept.pop()
            if not line.ended:
                return line
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._connect):
                _, line = await loop.create_connection(Line, self._host, self._port, ssl=self._tls)
        except TimeoutError as error:
            raise NoConnection("it could not be reached in time") from error
        except OSError as error:
            raise NoConnection(f"it could not be reached ({type(error).__name__})") from error
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
    return Head(_number(rest[:3].encode(), 10), fields)


def _number(text: bytes, base: int) -> int:
    try:
        number = int(text.split(b";")[0], base)
    except ValueError as error:
        raise Lost("it does not speak HTTP") from error
    if number < 0:
        raise Lost("it does not speak HTTP")
    return number
