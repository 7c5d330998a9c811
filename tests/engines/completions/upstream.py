"""A real completions server for the tests, and a proxy before it that fails as it is told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from typing import Any
from urllib.parse import urlsplit

from cgr.engines.completions.policy import RetryPolicy
from cgr.engines.llama.engine import start_server
from cgr.engines.open import find_model

KEY = "a key of the tests"
HASTY = RetryPolicy(tries=4, pause=0.01, longest=0.2, connect=5.0, first=4.0, stall=1.0)
COMPLETIONS = ("/completion", "/v1/completions")
EVENT = b"data: "


@cache
def upstream(number: int = 0) -> Any:
    """The embedded model on llama.cpp's server, with four slots: `number` tells several apart."""
    return start_server(find_model(None), KEY, 4, 2048, 1)


def address(number: int = 0) -> str:
    return str(upstream(number).listening_address)


@dataclass(frozen=True)
class Fault:
    """What goes wrong with one completion: before it, or after so many events of it."""

    kind: str
    after: int = 0


@dataclass
class Proxy:
    """Passes requests on. A completion takes the next of `faults`, None being none; what was done is in `done`."""

    target: str
    faults: list[Fault | None] = field(default_factory=list)
    always: Fault | None = None
    done: list[str] = field(default_factory=list)
    address: str = ""
    completions: int = 0
    running: int = 0
    handlers: set[asyncio.Task[None]] = field(default_factory=set)
    server: asyncio.Server | None = None
    port: int = 0

    async def start(self) -> None:
        self.server = await asyncio.start_server(self._connected, "127.0.0.1", self.port)
        self.port = self.server.sockets[0].getsockname()[1]
        self.address = f"http://127.0.0.1:{self.port}"

    async def stop(self) -> None:
        """As a server that is killed."""
        assert self.server is not None
        self.server.close()
        for handler in list(self.handlers):
            handler.cancel()
        await asyncio.gather(*self.handlers, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        handler = asyncio.current_task()
        assert handler is not None
        self.handlers.add(handler)
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
                while await self._one(reader, writer):
                    pass
        finally:
            self.handlers.discard(handler)
            writer.transport.abort()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = await reader.readuntil(b"\r\n\r\n")
        lines = head.decode().split("\r\n")
        length = next((int(line.split(":")[1]) for line in lines if line.lower().startswith("content-length")), 0)
        body = await reader.readexactly(length)
        completes = lines[0].split()[1] in COMPLETIONS
        self.completions += completes
        fault = self._next() if completes else None
        if fault and fault.kind in REPLIES:
            self.done.append(fault.kind)
            writer.write(REPLIES[fault.kind])
            await writer.drain()
            return True
        if fault and fault.kind == "reset":
            self.done.append(fault.kind)
            writer.transport.abort()
            return False
        self.running += completes
        try:
            await self._pass(head, body, reader, writer, fault)
        finally:
            self.running -= completes
        return False

    def _next(self) -> Fault | None:
        return self.faults.pop(0) if self.faults else self.always

    async def _pass(
        self, head: bytes, body: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, fault: Fault | None
    ) -> None:
        """To the server and back, until either hangs up; the server sees it when the client does."""
        target = urlsplit(self.target)
        theirs, ours = await asyncio.open_connection(target.hostname, target.port)
        ours.write(head.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n") + body)  # else it would keep us waiting
        gone = asyncio.create_task(reader.read(1))
        passing = asyncio.create_task(self._relay(theirs, writer, fault))
        try:
            await asyncio.wait({gone, passing}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            ours.transport.abort()
            for task in (gone, passing):
                task.cancel()
            await asyncio.gather(gone, passing, return_exceptions=True)

    async def _relay(self, theirs: asyncio.StreamReader, writer: asyncio.StreamWriter, fault: Fault | None) -> None:
        events = 0
        while line := await theirs.readline():
            if line.startswith(EVENT):
                events += 1
                if fault and fault.kind == "withhold":
                    if events == fault.after:  # as llama.cpp does with a token that ends inside a character
                        self.done.append(fault.kind)
                        line = b":" + line[1:]  # a comment, as long as the event was
                elif fault and events > fault.after:
                    self.done.append(fault.kind)
                    await self._spoil(fault, writer)
                    return
            writer.write(line)
            await writer.drain()

    async def _spoil(self, fault: Fault, writer: asyncio.StreamWriter) -> None:
        if fault.kind == "cut":
            writer.transport.abort()
        elif fault.kind == "garbage":
            writer.write(b'data: {"oops\n\n\r\n')
            await writer.drain()
            writer.close()
        elif fault.kind == "stall":
            await asyncio.Event().wait()


def _reply(status: str, body: bytes, more: str = "") -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n{more}\r\n".encode() + body


REPLIES = {
    "429": _reply("429 Too Many Requests", b'{"error": {"message": "slow down"}}', "Retry-After: 0.05\r\n"),
    "503": _reply("503 Service Unavailable", b'{"error": {"message": "loading"}}'),
    "500": _reply("500 Internal Server Error", b"<html>oops</html>"),
    "no JSON": _reply("200 OK", b"<html>hello</html>"),
    "no stream": _reply("200 OK", b'{"hello": 1}'),
}
BEFORE = [Fault(kind) for kind in (*REPLIES, "reset")]
WITHIN = [Fault(kind, after) for kind in ("cut", "garbage") for after in (0, 1, 9)] + [Fault("stall"), Fault("stall", 9)]


@asynccontextmanager
async def proxy(*faults: Fault | None, number: int = 0, always: Fault | None = None) -> AsyncIterator[Proxy]:
    """The proxy lets everything through until `faults` are set, as long as none are given."""
    passing = Proxy(address(number), list(faults), always)
    await passing.start()
    try:
        yield passing
    finally:
        await passing.stop()
