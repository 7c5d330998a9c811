"""What is examined: an engine, a problem put to it, and a piece of its thinking that can be asked about in several ways."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from cgr.engines.base import Engine, Sampling, Session
from cgr.probing import ProbeSpec
from cgr.records import Probe
from cgr.rules.base import WAIT

SAMPLING = Sampling()


@dataclass(frozen=True, slots=True)
class Subject:
    """`spec` says how it is asked, `suffix` in which tokens; `cuts` where; a session has room for all of it."""

    engine: Engine
    prompt: tuple[int, ...]
    spec: ProbeSpec
    suffix: tuple[int, ...]
    cuts: tuple[int, ...]

    @classmethod
    async def of(cls, engine: Engine, question: str, spec: ProbeSpec, cuts: tuple[int, ...]) -> Subject:
        return cls(engine, await engine.prompt(question), spec, await engine.encode(spec.prefix), cuts)

    @property
    def steps(self) -> tuple[int, ...]:
        """The lengths of the stretches between cuts."""
        return tuple(after - before for before, after in pairwise((0, *self.cuts)))

    async def open(self, prompt: Sequence[int] = ()) -> Session:
        room = self.cuts[-1] + len(self.suffix) + self.spec.max_answer_tokens
        return await self.engine.open(prompt or self.prompt, replace(SAMPLING, limit=self.cuts[-1]), room=room)

    async def ask(self, session: Session, at: int) -> Probe:
        answered = await session.probe(self.suffix, self.spec.max_answer_tokens, self.spec.done())
        return self.spec.read(at, answered.tokens, answered.ended)


@dataclass(slots=True)
class Thought:
    """Thinking as it came: its ids, the seconds of each stretch, and, where it was asked, of each probe."""

    ids: list[int] = field(default_factory=list)
    stretches: list[float] = field(default_factory=list)
    probes: list[Probe] = field(default_factory=list)
    asking: list[float] = field(default_factory=list)
    again: list[Probe] = field(default_factory=list)


async def think(subject: Subject, *, ask: bool = False) -> Thought:
    """Think to the last cut; if asked to, probe at each cut, and once more right after."""
    thought, session = Thought(), await subject.open()
    wait = await subject.engine.encode(WAIT)
    try:
        for at, step in zip(subject.cuts, subject.steps, strict=True):
            began = time.perf_counter()
            thought.ids += await _stretch(session, step, wait)
            thought.stretches.append(time.perf_counter() - began)
            if ask:
                began = time.perf_counter()
                thought.probes.append(await subject.ask(session, at))
                thought.asking.append(time.perf_counter() - began)
                thought.again.append(await subject.ask(session, at))
    finally:
        await session.close()
    return thought


async def _stretch(session: Session, tokens: int, wait: Sequence[int]) -> list[int]:
    """So many tokens, whether the model would end or not: here its thinking is only something to ask about."""
    ids: list[int] = []
    while len(ids) < tokens:
        stretch = await session.think(tokens - len(ids))
        ids += stretch.ids
        if stretch.ended and len(ids) < tokens:
            written = wait[: tokens - len(ids)]
            await session.append(written)
            ids += written
    return ids
