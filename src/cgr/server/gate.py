"""Admission: how many requests are worked on at once, and how many may wait for how long."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from cgr.server.faults import ApiError
from cgr.server.metrics import Metrics

RETRY_SECONDS = 1.0
CALM_SECONDS = 1.0


class Gate:
    """`places`: requests at once; `queue`: requests that may wait, in order; `seconds`: how long they may."""

    def __init__(self, places: int, queue: int, seconds: float, metrics: Metrics) -> None:
        self.places, self.queue, self.seconds, self.metrics = places, queue, seconds, metrics
        self._free = asyncio.Semaphore(places)
        self._waiting = 0
        self._left = asyncio.Event()

    @asynccontextmanager
    async def place(self) -> AsyncIterator[float]:
        """A place, for as long as the context lasts; gives the seconds that it took to get it."""
        began = time.perf_counter()
        if self._free.locked():
            await self._wait()
        else:
            await self._free.acquire()
        waited = time.perf_counter() - began
        self.metrics.queue_wait.observe(waited)
        self.metrics.in_flight.inc()
        try:
            yield waited
        finally:
            self.metrics.in_flight.dec()
            self._free.release()
            self._left.set()

    async def calm(self) -> None:
        """Wait while all places are taken, but not for long: for work that nobody waits for, and that must end all the
        same."""
        if not self._free.locked():
            return
        self._left.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(CALM_SECONDS):
                await self._left.wait()

    async def _wait(self) -> None:
        if self._waiting >= self.queue:
            self.metrics.rejected.labels("queue_full").inc()
            message = f"All {self.places} places are taken, and {self._waiting} requests are waiting."
            raise ApiError(429, message, code="queue_full", wait=RETRY_SECONDS)
        self._waiting += 1
        self.metrics.queued.inc()
        try:
            async with asyncio.timeout(self.seconds):
                await self._free.acquire()
        except TimeoutError:
            self.metrics.rejected.labels("queue_timeout").inc()
            message = f"No place became free within {self.seconds:g} seconds."
            raise ApiError(408, message, code="queue_timeout", wait=RETRY_SECONDS) from None
        finally:
            self._waiting -= 1
            self.metrics.queued.dec()
