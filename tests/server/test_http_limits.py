"""Connections that clients reset."""

from __future__ import annotations

import asyncio

import pytest
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from cgr.server.http_limits import LimitedHttp


@pytest.mark.parametrize("error", [None, ConnectionResetError()], ids=["closed", "reset"])
async def test_no_clock_keeps_a_connection_that_is_gone(error: Exception | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each would keep its request in memory until it ends."""
    gone: list[Exception | None] = []
    monkeypatch.setattr(HttpToolsProtocol, "connection_lost", lambda self, exc: gone.append(exc))
    loop, protocol = asyncio.get_running_loop(), LimitedHttp.__new__(LimitedHttp)
    idle, head = (loop.call_later(1000, gone.clear) for _ in range(2))
    protocol.timeout_keep_alive_task, protocol._timer = idle, head
    protocol.connection_lost(error)
    assert idle.cancelled()
    assert head.cancelled()
    assert gone == [error]


async def test_every_head_of_a_connection_has_a_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not only the first one: a client could hold connections with half a head otherwise."""
    monkeypatch.setattr(HttpToolsProtocol, "on_message_begin", lambda self: setattr(self, "scope", {}))
    monkeypatch.setattr(HttpToolsProtocol, "on_headers_complete", lambda self: None)
    protocol = LimitedHttp.__new__(LimitedHttp)
    protocol.loop, protocol.transport, protocol.flow = asyncio.get_running_loop(), asyncio.Transport(), None  # type: ignore[assignment]
    protocol.url, protocol.headers = b"/", []
    for _ in range(2):
        protocol.on_message_begin()
        assert protocol._timer is not None
        protocol.on_headers_complete()
        assert protocol._timer is None
