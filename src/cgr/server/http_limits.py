"""HTTP with limits on the head of a request, which uvicorn does not have: its size, and the time it may take."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from cgr.server.exchange import FLOW, Receive, Scope, Send

MAX_HEAD_BYTES = 64 << 10
HEAD_SECONDS = 30.0
TOO_LARGE_HEADERS = ((b"content-type", b"application/json"), (b"connection", b"close"), (b"content-length", b"105"))
TOO_LARGE_BODY = (
    b'{"error":{"message":"The headers are too long.","type":"invalid_request_error","param":null,"code":null}}'
)
TOO_LARGE = b"\r\n".join((
    b"HTTP/1.1 431 Request Header Fields Too Large",
    *(b"%b: %b" % pair for pair in TOO_LARGE_HEADERS),
    b"",
    TOO_LARGE_BODY,
))  # fmt: skip


async def too_large(_scope: Scope, _receive: Receive, send: Send) -> None:
    """An application that refuses every request."""
    await send({"type": "http.response.start", "status": 431, "headers": TOO_LARGE_HEADERS})
    await send({"type": "http.response.body", "body": TOO_LARGE_BODY})


class LimitedHttp(HttpToolsProtocol):
    """Closes connections whose request head is too long or takes too long."""

    _head_bytes = 0
    _in_head = True
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Start the clock of the first head."""
        super().connection_made(transport)
        self._timer = self.loop.call_later(HEAD_SECONDS, transport.close)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the clocks. uvicorn lets that of an idle connection run if the client reset it, and until it ends everything
        of the connection stays in memory."""
        self._stop_clock()
        self._unset_keepalive_if_required()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Count the bytes of a head."""
        if self._in_head:
            self._head_bytes += len(data)
        super().data_received(data)
        if self._in_head and self._head_bytes > MAX_HEAD_BYTES and not self.transport.is_closing():
            self.transport.write(TOO_LARGE)
            self.transport.close()

    def on_message_begin(self) -> None:
        """A new request, whose head has a clock of its own."""
        self._in_head = True
        if self._timer is None:
            self._timer = self.loop.call_later(HEAD_SECONDS, self.transport.close)
        super().on_message_begin()
        self.scope[FLOW] = self.flow  # type: ignore[literal-required]

    def on_headers_complete(self) -> None:
        """The head is complete. Its last bytes may have come together with the rest of the request."""
        self._in_head, self._head_bytes = False, 0
        self._stop_clock()
        if len(self.url) + sum(len(name) + len(value) for name, value in self.headers) > MAX_HEAD_BYTES:
            self.app = too_large
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """The next bytes begin another head."""
        self._in_head = True
        super().on_message_complete()

    def _stop_clock(self) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None
