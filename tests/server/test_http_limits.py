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
