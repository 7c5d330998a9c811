"""Many traces in flight: each is made and kept as a whole, and one that fails is noted and does not end the rest."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from cgr.errors import CgrError, EngineError
from cgr.lab.record.progress import Progress
from cgr.lab.store import Key, Store

T = TypeVar("T")
PATIENCE = 3  # failures in a row, beyond those in flight, until an engine is given up


class Jobs:
    """What is missing in one stage of a run. A store that fails ends the work, as does an engine that only fails."""

    def __init__(self, store: Store, stage: str, progress: Progress, sessions: int) -> None:
        self.store, self.stage, self.progress, self.sessions = store, stage, progress, sessions
        self._in_a_row = 0

    async def run(self, keys: Iterable[Key], make: Callable[[Key], Awaitable[T]], keep: Callable[[Key, T], None]) -> None:
        waiting = iter(keys)

        async def worker() -> None:
            for key in waiting:
                await self._one(key, make, keep)

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(self.sessions):
                    group.create_task(worker())
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None

    async def _one(self, key: Key, make: Callable[[Key], Awaitable[T]], keep: Callable[[Key, T], None]) -> None:
        try:
            made = await make(key)
        except CgrError as error:
            self._note(key, error)
            return
        keep(key, made)
        self._in_a_row = 0
        self.progress.finished()

    def _note(self, key: Key, error: CgrError) -> None:
        self.store.add_failure(key, self.stage, error)
        self.progress.fail()
        self._in_a_row += isinstance(error, EngineError)
        if self._in_a_row >= self.sessions + PATIENCE:
            raise EngineError(
                f"{self._in_a_row} traces in a row failed, the last because: {error.message}",
                "See to the engine; what is recorded is safe, and the same command goes on from there.",
            ) from error
