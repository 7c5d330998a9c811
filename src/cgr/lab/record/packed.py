"""All cuts of a saved trace asked at once, for engines that can: to the loop it looks as if each were asked in its turn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from cgr.engines.base import Answered, Done, Engine, OnText, Sampling, Session, Stretch
from cgr.errors import NotRecorded


class Packs(Engine, Protocol):
    """An engine whose `capabilities.packed` is set."""

    async def probe_many(
        self,
        prompt: Sequence[int],
        trace: Sequence[int],
        cuts: Sequence[int],
        suffix: Sequence[int],
        limit: int,
        done: Done,
        *,
        top: int = 0,
    ) -> list[Answered]: ...


class PackedEngine:
    """This engine, about to be told this trace and asked at these cuts, in ascending order."""

    def __init__(self, engine: Packs, trace: Sequence[int], cuts: Sequence[int]) -> None:
        self.engine, self.trace, self.cuts = engine, trace, cuts
        self.info, self.capabilities = engine.info, engine.capabilities

    async def encode(self, text: str) -> tuple[int, ...]:
        return await self.engine.encode(text)

    async def decode(self, ids: Sequence[int]) -> str:
        return await self.engine.decode(ids)

    async def prompt(self, question: str) -> tuple[int, ...]:
        return await self.engine.prompt(question)

    async def open(
        self, question: str | Sequence[int], sampling: Sampling, *, room: int, overlap: bool = False
    ) -> PackedSession:
        prompt = await self.prompt(question) if isinstance(question, str) else question
        return PackedSession(self, await self.engine.open(prompt, sampling, room=room), prompt)

    async def close(self) -> None:
        return None


class PackedSession:
    """The first probe asks at every cut; the others were answered with it. What is asked otherwise, the session behind
    answers."""

    def __init__(self, packed: PackedEngine, session: Session, prompt: Sequence[int]) -> None:
        self.packed, self.session, self.prompt = packed, session, prompt
        self.at = self.wasted = 0
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
            found = await packed.engine.probe_many(self.prompt, packed.trace, packed.cuts, suffix, limit, done, top=top)
            self._answers = dict(zip(packed.cuts, found, strict=True))
        if tuple(suffix) == self._suffix and not rewind and self.at in self._answers:
            return self._answers[self.at]
        return await self.session.probe(suffix, limit, done, guess, rewind=rewind, top=top)

    async def think(self, tokens: int, *, ban_end: bool = False, on_text: OnText | None = None) -> Stretch:
        raise NotRecorded("A trace that is asked at all its cuts at once is not thought.", "Probe it cut by cut.")

    async def prefetch(self, tokens: int, *, ban_end: bool = False) -> None:
        return None

    async def write(self, limit: int) -> str:
        return await self.session.write(limit)

    async def close(self) -> None:
        await self.session.close()
