"""The trace that a checkup probes: how it is generated and probed, and what a probe of it costs."""

from __future__ import annotations

import math
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median

from cgr.engines.base import Engine, Sampling, Session
from cgr.probing import ProbeSpec
from cgr.records import Conversation, Probe, Record
from cgr.rules.actions import WAIT

GRID = 32  # engines think in chunks of 32 tokens: a multiple of it leaves no partial chunk


@dataclass(frozen=True, slots=True)
class ProbeSetup:
    """An engine, a prompt, the probe (`spec`, and `suffix`, the ids of its prefix) and the cuts where it is made."""

    engine: Engine
    prompt: tuple[int, ...]
    spec: ProbeSpec
    suffix: tuple[int, ...]
    cuts: tuple[int, ...]

    @classmethod
    async def create(cls, engine: Engine, question: Conversation, spec: ProbeSpec, cuts: tuple[int, ...]) -> ProbeSetup:
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


@dataclass(frozen=True, slots=True)
class Cost(Record):
    """Seconds per thinking token and per probe, measured up to position `at` with answers of up to `answer_tokens`. A
    probe includes the time to rewind the cache.

    `interval` is the smallest multiple of 32 with probe_seconds / (interval * token_seconds) <= share. `own_interval` is
    the default interval of the model, and `own_share` the ratio there.
    """

    at: int
    answer_tokens: int
    token_seconds: float
    probe_seconds: float
    share: float
    interval: int
    own_interval: int
    own_share: float


def measure_cost(setup: ProbeSetup, plain: TimedTrace, probed: TimedTrace, share: float, own_interval: int) -> Cost:
    """The cost, from a trace without probes and the same trace with probes; all times are medians."""
    each = [seconds / step for seconds, step in zip(plain.stretch_seconds, setup.steps, strict=True)]
    token = median(each[1:] or each)  # the first stretch includes the prompt
    # a probe also makes the next stretch of thinking longer, by rewinding the cache
    rewinding = median(probed.stretch_seconds[1:] or [0.0]) - median(plain.stretch_seconds[1:] or [0.0])
    probe = median(probed.probe_seconds) + max(rewinding, 0.0)
    interval, own_share = interval_for(probe, token, share), probe / (own_interval * token)
    answer_tokens = setup.spec.max_answer_tokens
    return Cost(setup.cuts[-1], answer_tokens, token, probe, share, interval, own_interval, own_share)


def interval_for(probe_seconds: float, token_seconds: float, share: float) -> int:
    """The smallest multiple of 32 at which probing takes at most this share of the thinking time."""
    return GRID * max(math.ceil(probe_seconds / (share * token_seconds * GRID)), 1)
