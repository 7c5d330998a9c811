"""The trace that a checkup probes: how it is generated, timed and probed."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import pairwise

from cgr.engines.base import Engine, Sampling, Session
from cgr.probing import ProbeSpec
from cgr.records import Probe
from cgr.rules.actions import WAIT


@dataclass(frozen=True, slots=True)
class ProbeSetup:
    """An engine, a prompt, the probe (`spec`, and `suffix`, the ids of its prefix) and the cuts where it is made."""

    engine: Engine
    prompt: tuple[int, ...]
    spec: ProbeSpec
    suffix: tuple[int, ...]
    cuts: tuple[int, ...]

    @classmethod
    async def create(cls, engine: Engine, question: str, spec: ProbeSpec, cuts: tuple[int, ...]) -> ProbeSetup:
        """A setup for this question, with prompt and prefix encoded by the engine."""
        return cls(engine, await engine.prompt(question), spec, await engine.encode(spec.prefix), cuts)

    @property
    def steps(self) -> tuple[int, ...]:
        """The numbers of tokens between cuts."""
        return tuple(after - before for before, after in pairwise((0, *self.cuts)))

    @asynccontextmanager
    async def session(self, prompt: Sequence[int] = (), seed: int = 0) -> AsyncIterator[Session]:
        """A new session on this prompt (default: the setup's own), with room for the whole trace and a probe."""
        room = self.cuts[-1] + len(self.suffix) + self.spec.max_answer_tokens
        session = await self.engine.open(prompt or self.prompt, Sampling(seed=seed, limit=self.cuts[-1]), room=room)
        try:
            yield session
        finally:
            await session.close()

    async def probe(self, session: Session, at: int) -> Probe:
        """Probe the session, which has thought `at` tokens."""
        answered = await session.probe(self.suffix, self.spec.max_answer_tokens, self.spec.done())
        return self.spec.read(at, answered.tokens, answered.ended)


@dataclass(slots=True)
class TimedTrace:
    """A trace: its ids and the seconds of each stretch between cuts. If it was probed: the probes at the cuts, their
    seconds, and the same probes made a second time."""

    ids: list[int] = field(default_factory=list)
    stretch_seconds: list[float] = field(default_factory=list)
    probes: list[Probe] = field(default_factory=list)
    probe_seconds: list[float] = field(default_factory=list)
    repeated: list[Probe] = field(default_factory=list)


async def think(setup: ProbeSetup, *, probe: bool = False) -> TimedTrace:
    """Think to the last cut. With `probe`, probe twice at each cut."""
    trace, wait = TimedTrace(), await setup.engine.encode(WAIT)
    async with setup.session() as session:
        for at, step in zip(setup.cuts, setup.steps, strict=True):
            began = time.perf_counter()
            trace.ids += await _stretch(session, step, wait)
            trace.stretch_seconds.append(time.perf_counter() - began)
            if probe:
                began = time.perf_counter()
                trace.probes.append(await setup.probe(session, at))
                trace.probe_seconds.append(time.perf_counter() - began)
                trace.repeated.append(await setup.probe(session, at))
    return trace


async def _stretch(session: Session, tokens: int, wait: Sequence[int]) -> list[int]:
    """Exactly this many tokens: if the model ends its thinking early, "Wait" is appended and it continues."""
    ids: list[int] = []
    while len(ids) < tokens:
        stretch = await session.think(tokens - len(ids))
        ids += stretch.ids
        if stretch.ended and len(ids) < tokens:
            written = wait[: tokens - len(ids)]
            await session.append(written)
            ids += written
    return ids
