"""One HTTP exchange over ASGI: the body within limits, replies, streams with pings, and a client that may leave."""

from __future__ import annotations

import asyncio
import re
import time
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Mapping, MutableMapping
from typing import Any, TypeVar

import orjson

from cgr import __version__
from cgr.server.faults import MESSAGES_PATH, ApiError, messages_error

T = TypeVar("T")
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
SAFE_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
BODY_SECONDS = 60.0  # for the whole body of a request
FLOW = "cgr.flow"  # in a scope: what knows whether the client reads
PING = b": ping\n\n"
NOT_HELD_BACK = {"cache-control": "no-cache, no-transform", "x-accel-buffering": "no"}
STREAM_HEADERS = {"content-type": "text/event-stream; charset=utf-8", **NOT_HELD_BACK}


class ClientLeft(Exception):
    """The client closed the connection before its reply was complete."""


class Exchange:
    """A request and its reply. `fields` go into the log. A request id of the client is used if it is harmless."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scope, self._receive, self._send = scope, receive, send
        self.received = time.perf_counter()
        self.headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        given = self.headers.get("x-request-id", "")
        self.id = given if SAFE_ID.fullmatch(given) else uuid.uuid4().hex
        self.overhead = 0.0  # seconds from the request to the work on it, without the queue, if it is passed on
        self.status: int | None = None
        self.fields: dict[str, Any] = {}
        self.ending: ApiError | None = None
        self._gone = False
        self.seen: set[type] = set()  # kinds of events that were sent
        self.answer: Any = None  # what is being done, if this server answers itself
        self._work: asyncio.Task[Any] | None = None

    @property
    def started(self) -> bool:
        """Whether the reply has begun."""
        return self.status is not None

    async def body(self, limit: int) -> bytes:
        """The body of the request; 413 if it is longer than this."""
        too_long = ApiError(413, f"The body is longer than {limit} bytes.", code="body_too_large")
        announced = self.headers.get("content-length", "0")
        if announced.isdecimal() and int(announced) > limit:
            raise too_long
        parts, size = [], 0
        try:
            async with asyncio.timeout(BODY_SECONDS):
                while True:
                    message = await self._receive()
                    if message["type"] == "http.disconnect":
                        raise ClientLeft
                    parts.append(message.get("body", b""))
                    size += len(parts[-1])
                    if size > limit:
                        raise too_long
                    if not message.get("more_body"):
                        return b"".join(parts)
        except TimeoutError:
            raise ApiError(408, f"The body did not arrive within {BODY_SECONDS:g} seconds.", code="timeout") from None

    async def while_connected(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of the work. It is cancelled, and `ClientLeft` raised, if the client leaves."""
        task: asyncio.Task[T] = asyncio.create_task(work)
        self._work = task
        watcher = asyncio.create_task(self._disconnected())
        try:
            await asyncio.wait({task, watcher}, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            raise ClientLeft
        except asyncio.CancelledError:
            if self.ending is not None:  # the server ends: `end` cancelled the work
                raise self.ending from None
            if self._gone:
                raise ClientLeft from None
            raise
        finally:
            task.cancel()
            watcher.cancel()
            await asyncio.gather(task, watcher, return_exceptions=True)

    def end(self, error: ApiError) -> None:
        """Break the work off, with this error for the client."""
        self.ending = error
        if self._work:
            self._work.cancel()

    def give_up(self) -> None:
        """Treat the client as gone: it does not read its reply."""
        self._gone = True
        if self._work:
            self._work.cancel()

    async def _disconnected(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass

    # Replies

    async def start(self, status: int, headers: Mapping[str, str]) -> None:
        """Send the status and the headers."""
        self.status = status
        given = {"x-request-id": self.id, "x-cgr-version": __version__, **headers}
        raw = [(name.encode("latin-1"), value.encode("latin-1", "replace")) for name, value in given.items()]
        await self._send({"type": "http.response.start", "status": status, "headers": raw})

    def write(self, data: bytes, *, more: bool = True) -> Awaitable[None]:
        """Send a part of the body; waits while the client does not read."""
        return self._send({"type": "http.response.body", "body": data, "more_body": more})

    async def reply(self, status: int, data: bytes, headers: Mapping[str, str]) -> None:
        """A whole reply."""
        await self.start(status, {"content-length": str(len(data)), **headers})
        await self.write(data, more=False)

    async def reply_json(self, value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        """A whole reply in JSON."""
        await self.reply(status, orjson.dumps(value), {"content-type": "application/json", **(headers or {})})

    async def fail(self, error: ApiError) -> None:
        """An error as the whole reply."""
        messages = self.scope["path"] == MESSAGES_PATH
        body = messages_error(error) | {"request_id": self.id} if messages else error.body()
        await self.reply_json(body, error.status, error.headers())


def milliseconds(seconds: float) -> str:
    """A duration as headers give it."""
    return f"{seconds * 1000:.3f}"


class EventWriter:
    """Sends server-sent events. The reply begins with the first of them, or with the first ping. `patience`: seconds after
    which a client that reads nothing is taken to have left. `between`: nothing of an event is sent while its rest is not;
    only there can a ping stand."""

    def __init__(self, exchange: Exchange, ping: float, patience: float) -> None:
        self.exchange, self.headers, self.ping, self.patience = exchange, dict(STREAM_HEADERS), ping, patience
        self.between = True
        self._buffer: list[bytes] = []
        self._flow = exchange.scope.get(FLOW)
        self._sent = time.monotonic()
        self._sending = False
        self._timer = asyncio.get_running_loop().call_later(min(ping, patience), self._tick)
        self._pinging: asyncio.Task[None] | None = None

    def add(self, frames: bytes) -> None:
        """Put frames, if there are any, into the buffer."""
        if frames:
            self._buffer.append(frames)

    @property
    def pending(self) -> bool:
        """Whether something waits in the buffer."""
        return bool(self._buffer)

    @property
    def can_send_now(self) -> bool:
        """Whether the reply has begun, nothing of it waits, and the client reads; False also if the HTTP server does not
        say."""
        flow, begun = self._flow, self.exchange.status is not None
        return begun and not self._buffer and not self._sending and flow is not None and not flow.write_paused

    def send_now(self, frames: bytes) -> None:
        """Send frames without waiting, if `can_send_now`: the HTTP server then does not wait for anything either."""
        for _ in self.exchange.write(frames).__await__():
            raise RuntimeError("The HTTP server waits although the client reads.")
        self._sent = time.monotonic()

    async def flush(self, *, more: bool = True) -> None:
        """Send what is in the buffer."""
        data = b"".join(self._buffer)
        self._buffer.clear()
        self._sending, self._sent = True, time.monotonic()
        if not self.exchange.started:
            await self.exchange.start(200, self.headers)
        await self.exchange.write(data, more=more)
        self._sending, self._sent = False, time.monotonic()

    def _tick(self) -> None:
        silent = time.monotonic() - self._sent
        if self._sending and silent >= self.patience:
            self.exchange.give_up()
            return
        if silent >= self.ping and self.between and not self._sending:
            self._buffer.append(PING)
            self._pinging = asyncio.create_task(self.flush())
            silent = 0.0
        wait = max((self.patience if self._sending else self.ping) - silent, 0.01)
        self._timer = asyncio.get_running_loop().call_later(min(wait, self.ping), self._tick)

    async def close(self) -> None:
        """Stop the pings."""
        self._timer.cancel()
        if self._pinging:
            await asyncio.gather(self._pinging, return_exceptions=True)
