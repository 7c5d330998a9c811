"""Several probe sets of one trace in one pass: the model reads the saved trace once, for all of them.

Each set is made by a loop of its own. A probe waits until every loop waits with one; then the one at the earliest position
is made. So the positions ascend on one session, whose model has to read only what comes between two of them.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count

from cgr.engines.base import Answered, Done, Engine, Prompt, Sampling, Session
from cgr.engines.forwarding import ForwardingEngine, ForwardingSession


@dataclass(slots=True)
class SharedReading:
    """One session of a model, which reads the tokens `ids`. `loops`: those that use it and have not left."""

    session: Session
    ids: Sequence[int]
    loops: int
    _waiting: list[tuple[int, int, asyncio.Future[None]]] = field(default_factory=list)
    _arrivals: count[int] = field(default_factory=count)
    _read: int = 0

    async def probe(
        self, at: int, suffix: Sequence[int], limit: int, done: Done, guess: Sequence[int], *, top: int
    ) -> Answered:
        """The answer after the first `at` tokens, when it is the turn of this probe."""
        entry = at, next(self._arrivals), asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, entry)
        self._give_turn()
        try:
            await entry[2]
        except asyncio.CancelledError:
            self._waiting = [one for one in self._waiting if one is not entry]
            heapq.heapify(self._waiting)
            raise
        if at > self._read:
            await self.session.append(self.ids[self._read : at])
            self._read = at
        return await self.session.probe(suffix, limit, done, guess, rewind=self._read - at, top=top)

    def leave(self) -> None:
        """A loop needs no more probes."""
        self.loops -= 1
        self._give_turn()

    def _give_turn(self) -> None:
        if self._waiting and len(self._waiting) >= self.loops:
            turn = heapq.heappop(self._waiting)[2]
            if not turn.done():
                turn.set_result(None)


class SharingEngine(ForwardingEngine):
    """An engine whose session is a part of a shared one."""

    def __init__(self, engine: Engine, shared: SharedReading) -> None:
        super().__init__(engine)
        self.shared = shared

    async def open(
        self, prompt: Prompt, sampling: Sampling, *, room: int, overlap: bool = False, wait: float | None = None
    ) -> Session:
        return SharingSession(self.shared)


class SharingSession(ForwardingSession):
    """The view of one loop: its own position, and probes in turn."""

    def __init__(self, shared: SharedReading) -> None:
        super().__init__(shared.session)
        self.shared, self.at, self._left = shared, 0, False

    async def append(self, ids: Sequence[int]) -> None:
        self.at += len(ids)

    async def probe(
        self, suffix: Sequence[int], limit: int, done: Done, guess: Sequence[int] = (), *, rewind: int = 0, top: int = 0
    ) -> Answered:
        return await self.shared.probe(self.at - rewind, suffix, limit, done, guess, top=top)

    async def close(self) -> None:
        """Leave the shared session; it is closed by its owner."""
        if not self._left:
            self._left = True
            self.shared.leave()
