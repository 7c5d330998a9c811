"""Runs many jobs at once. Each trace is made and stored as a whole; a failure is recorded and does not stop the others."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from cgr.errors import CgrError, EngineError
from cgr.lab.record.progress import Progress
from cgr.lab.store import Key, Store
from cgr.lab.store.schema import CONTINUES

T = TypeVar("T")
Execute = Callable[[Iterable[Key], Callable[[Key], Awaitable[None]], int], Awaitable[None]]
MAX_FAILURES = 3  # failures in a row, beyond the number of sessions, before the engine is given up


async def in_tasks(keys: Iterable[Key], work: Callable[[Key], Awaitable[None]], limit: int) -> None:
    """Do the work for each key in asyncio tasks, at most `limit` at once. The first error ends all of them."""
    waiting = iter(keys)

    async def worker() -> None:
        for key in waiting:
            await work(key)

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(limit):
                group.create_task(worker())
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None


class Jobs:
    """The missing traces of one stage of a run. `execute` decides where and how many run at once.

    An error of the store ends the work, and so does an engine that fails every time.
    """

    def __init__(self, store: Store, stage: str, progress: Progress, sessions: int, *, execute: Execute = in_tasks) -> None:
        self.store, self.stage, self.progress, self.sessions, self.execute = store, stage, progress, sessions, execute
        self._failures_in_a_row = 0

    async def run(self, keys: Iterable[Key], make: Callable[[Key], Awaitable[T]], keep: Callable[[Key, T], None]) -> None:
        """Make each trace with `make` and store it with `keep`."""

        async def work(key: Key) -> None:
            try:
                made = await make(key)
            except CgrError as error:
                self._failed(key, error)
                return
            keep(key, made)
            self._failures_in_a_row = 0
            self.progress.trace_done()

        await self.execute(keys, work, self.sessions)

    def _failed(self, key: Key, error: CgrError) -> None:
        self.store.add_failure(key, self.stage, error)
        self.progress.trace_failed()
        self._failures_in_a_row += isinstance(error, EngineError)
        if self._failures_in_a_row >= self.sessions + MAX_FAILURES:
            raise EngineError(
                f"{self._failures_in_a_row} traces in a row failed. The last error: {error.message}",
                f"Check the engine. {CONTINUES}",
            ) from error
