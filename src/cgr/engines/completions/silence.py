"""Ends the wait for a server that sends nothing. One timer watches a whole stream: one for each piece would cost as much
as reading the piece."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable

import aiohttp

NOT_WAITING = math.inf


class Silence:
    """Calls `end` with a `TimeoutError` once nothing came for too long, and nothing more after `close`.

    `first`: seconds until the first event, `later`: until each one after it; None is no limit. Time counts from `since`,
    which the reader sets whenever it begins to wait; a reader that is busy itself sets it to `NOT_WAITING`.
    """

    def __init__(self, end: Callable[[BaseException], None], first: float | None, later: float | None) -> None:
        self.since, self.begun = time.monotonic(), False
        self._end, self._first, self._later = end, first, later
        self._timer: asyncio.TimerHandle | None = None
        self._watch()

    def close(self) -> None:
        """Stop watching."""
        if self._timer:
            self._timer.cancel()
            self._timer = None

    def _watch(self) -> None:
        limit = self._later if self.begun else self._first
        silent = max(time.monotonic() - self.since, 0.0)
        if limit is not None and silent >= limit:
            self._end(TimeoutError())
            return
        left = [one - silent for one in (self._first, self._later) if one is not None and one > silent]
        if left:
            self._timer = asyncio.get_running_loop().call_later(min(left), self._watch)


def watched(response: aiohttp.ClientResponse, first: float | None, later: float | None) -> Silence:
    """The clock of a streamed reply, in place of aiohttp's, which sets a timer for each piece."""
    if response.connection and response.connection.protocol:
        response.connection.protocol.read_timeout = None
    return Silence(response.content.set_exception, first, later)
