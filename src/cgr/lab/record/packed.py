"""Probes all cuts of a saved trace in one pass, for engines that can. To the loop it looks like separate probes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, cast

from cgr.engines.base import Answered, Done, Engine, Ids, OnText, Prompt, Sampling, Session, Stretch, is_ids
from cgr.engines.forwarding import ForwardingEngine, ForwardingSession
from cgr.errors import NotRecorded
from cgr.records import Conversation


class PackingEngine(Engine, Protocol):
    """An engine with `capabilities.packed`."""

    async def probe_many(
        self, prompt: Ids, trace: Ids, cuts: Ids, suffix: Ids, limit: int, done: Done, *, top: int = 0
    ) -> list[Answered]:
        """The answer at each cut of the trace."""


class PackedEngine(ForwardingEngine):
    """An engine that will be probed on this trace at these cuts, in ascending order."""

    def __init__(self, engine: PackingEngine, trace: Sequence[int], cuts: Sequence[int]) -> None:
        super().__init__(engine)
        self.packing, self.trace, self.cuts = engine, trace, cuts

    async def open(
        self, prompt: Prompt, sampling: Sampling, *, room: int, overlap: bool = False, wait: float | None = None
    ) -> PackedSession:
        ids = prompt if is_ids(prompt) else await self.prompt(cast(Conversation, prompt))
        return PackedSession(self, await self.engine.open(ids, sampling, room=room, wait=wait), ids)


class PackedSession(ForwardingSession):
    """The first probe at a cut computes the answers at all cuts; the next ones return them.

    A probe with another suffix, after a rewind or at another position goes to the wrapped session.
    """

    def __init__(self, packed: PackedEngine, session: Session, prompt: Sequence[int]) -> None:
        super().__init__(session)
        self.packed, self.prompt, self.at = packed, prompt, 0
        self._suffix: tuple[int, ...] | None = None
        self._answers: dict[int, Answered] = {}

    async def append(self, ids: Sequence[int]) -> None:
        self.at += len(ids)
        await self.session.append(ids)

    async def probe(
        self, suffix: Sequence[int], limit: int, done: Done, guess: Sequence[int] = (), *, rewind: int = 0, top: int = 0
    ) -> Answered:
        packed = self.packed
        if self._suffix is None and self.at in packed.cuts:
            self._suffix = tuple(suffix)
            found = await packed.packing.probe_many(self.prompt, packed.trace, packed.cuts, suffix, limit, done, top=top)
            self._answers = dict(zip(packed.cuts, found, strict=True))
        if tuple(suffix) == self._suffix and not rewind and self.at in self._answers:
            return self._answers[self.at]
        return await self.session.probe(suffix, limit, done, guess, rewind=rewind, top=top)

    async def think(self, tokens: int, *, ban_end: bool = False, on_text: OnText | None = None) -> Stretch:
        raise NotRecorded("A session for packed probes cannot think.", "Append the saved trace to it.")

    async def prefetch(self, tokens: int, *, ban_end: bool = False) -> None:
        """Nothing: the session does not think."""
