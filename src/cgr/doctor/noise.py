"""How far apart the certainties of one and the same probe lie, by the ways that it can be come by.

What a quantised model computes depends on how its tokens were batched, cached and spread over threads. A rule that compares
a certainty with a threshold then stops at one place today and at another tomorrow.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

from cgr.doctor.sample import SAMPLING, Subject, Thought
from cgr.engines.base import Engine, Session
from cgr.records import Probe, Record

EXACT = 1e-4
INNER = (0.001, 0.999)  # certainties whose log-odds are not rounding
Others = Mapping[str, Callable[[], Engine]]
OTHER_PROMPT = "Name three rivers and say where they begin."


@dataclass(frozen=True, slots=True)
class Way(Record):
    """One way to come by the probes: the certainty and the answer at each cut."""

    name: str
    certainties: tuple[float, ...]
    answers: tuple[str, ...]

    @classmethod
    def of(cls, name: str, probes: Sequence[Probe]) -> Way:
        return cls(name, tuple(probe.certainty for probe in probes), tuple(probe.answer for probe in probes))


@dataclass(frozen=True, slots=True)
class Noise(Record):
    """`largest`: the widest spread of certainty at one cut; `log_odds`: the same in log-odds, which carries over to other
    certainties. A certainty from `low` to `high` may fall on either side of the threshold. `moved`: cuts where one way
    would have stopped and another would not. `trace_repeats`: the same seed, probed or not, gave the same thinking."""

    ways: tuple[Way, ...]
    cuts: tuple[int, ...]
    largest: float
    log_odds: float
    answers_changed: int
    threshold: float
    low: float
    high: float
    moved: int
    trace_repeats: bool

    @property
    def exact(self) -> bool:
        return self.largest <= EXACT and not self.answers_changed


async def measure(
    subject: Subject, plain: Thought, asked: Thought, others: Others, threshold: float, sessions: int
) -> Noise:
    """`plain` was thought without probes, `asked` with them; `others` open the same model otherwise, by name. They come
    last: the threads of one may become those of all."""
    repeats = plain.ids == asked.ids
    ids = plain.ids
    ways = [Way.of("thought by itself", asked.probes), Way.of("asked again", asked.again)] if repeats else []
    ways.append(Way.of("read piece by piece", await _read(subject, ids)))
    ways.append(Way.of("read afresh at each cut", await _afresh(subject, ids, sessions)))
    if sessions > 1:
        async with _company(subject, sessions - 1):
            ways.append(Way.of(f"with {sessions - 1} others in flight", await _read(subject, ids)))
    for name, opening in others.items():
        ways.append(Way.of(name, await _read_by(opening(), subject, ids)))
    return judge(ways, subject.cuts, threshold, repeats)


def judge(ways: Sequence[Way], cuts: tuple[int, ...], threshold: float, repeats: bool) -> Noise:
    """What the ways say together."""
    at_cuts = list(zip(*(way.certainties for way in ways), strict=True))
    largest = max(max(values) - min(values) for values in at_cuts)
    inner = [values for values in at_cuts if INNER[0] <= min(values) and max(values) <= INNER[1]]
    log_odds = max((_log_odds(max(values)) - _log_odds(min(values)) for values in inner), default=0.0)
    low, high = _band(threshold, log_odds if inner else None, largest)
    return Noise(
        ways=tuple(ways),
        cuts=cuts,
        largest=largest,
        log_odds=log_odds,
        answers_changed=sum(len(set(said)) > 1 for said in zip(*(way.answers for way in ways), strict=True)),
        threshold=threshold,
        low=low,
        high=high,
        moved=sum(min(values) < threshold <= max(values) for values in at_cuts),
        trace_repeats=repeats,
    )


def _band(threshold: float, log_odds: float | None, largest: float) -> tuple[float, float]:
    if log_odds is None or not 0 < threshold < 1:
        return max(threshold - largest, 0.0), min(threshold + largest, 1.0)
    middle = _log_odds(threshold)
    return _certainty(middle - log_odds), _certainty(middle + log_odds)


def _log_odds(value: float) -> float:
    return math.log(value) - math.log1p(-value)


def _certainty(log_odds: float) -> float:
    return (1 + math.tanh(log_odds / 2)) / 2


async def _read(subject: Subject, ids: Sequence[int]) -> list[Probe]:
    """Given to a new session piece by piece, and asked after each."""
    session = await subject.open()
    try:
        probes = []
        for at, step in zip(subject.cuts, subject.steps, strict=True):
            await session.append(ids[at - step : at])
            probes.append(await subject.ask(session, at))
        return probes
    finally:
        await session.close()


async def _read_by(engine: Engine, subject: Subject, ids: Sequence[int]) -> list[Probe]:
    try:
        return await _read(replace(subject, engine=engine), ids)
    finally:
        await engine.close()


async def _afresh(subject: Subject, ids: Sequence[int], sessions: int) -> list[Probe]:
    """A new session for each cut, with whatever an engine keeps of the last ones overwritten where it can be."""
    other = await subject.engine.prompt(OTHER_PROMPT)
    probes = []
    for at in subject.cuts:
        for _ in range(sessions):
            await _overwrite(await subject.open(other))
        session = await subject.open()
        try:
            await session.append(ids[:at])
            probes.append(await subject.ask(session, at))
        finally:
            await session.close()
    return probes


async def _overwrite(session: Session) -> None:
    try:
        await session.think(1)
    finally:
        await session.close()


@asynccontextmanager
async def _company(subject: Subject, count: int) -> AsyncIterator[None]:
    """Other sessions that think meanwhile, each with chances of its own."""
    tasks = [asyncio.create_task(_busy(subject, number)) for number in range(count)]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _busy(subject: Subject, number: int) -> None:
    """Until cancelled: thinks to the end of its room, and begins again."""
    while True:
        sampling = replace(SAMPLING, seed=number + 1, limit=subject.cuts[-1])
        session = await subject.engine.open(subject.prompt, sampling, room=subject.cuts[-1])
        try:
            await session.think(subject.cuts[-1])
        finally:
            await session.close()
