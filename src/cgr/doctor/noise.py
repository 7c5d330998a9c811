"""Noise: how much the certainty of the same probe varies with the way it is computed.

The result of a quantised model depends on how its tokens were batched, cached and distributed over threads. A rule that
compares a certainty with a threshold may then stop at different places in two runs.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

from cgr.doctor.sample import ProbeSetup, TimedTrace
from cgr.engines.base import Engine
from cgr.records import Probe, Record

EXACT = 1e-4
INNER = (0.001, 0.999)  # outside of this range, rounding dominates log-odds
OtherEngines = Mapping[str, Callable[[], Engine]]
OTHER_PROMPT = "Name three rivers and say where they begin."


@dataclass(frozen=True, slots=True)
class ProbeSeries(Record):
    """The certainty and the answer at each cut, computed in one way."""

    name: str
    certainties: tuple[float, ...]
    answers: tuple[str, ...]

    @classmethod
    def of(cls, name: str, probes: Sequence[Probe]) -> ProbeSeries:
        """The series of these probes, one for each cut."""
        return cls(name, tuple(probe.certainty for probe in probes), tuple(probe.answer for probe in probes))


@dataclass(frozen=True, slots=True)
class Noise(Record):
    """How the series (`ways`) differ. `largest`: the largest range of certainty at one cut; `log_odds`: the same in
    log-odds, which can be compared at other certainties. A certainty from `low` to `high` may be on either side of the
    threshold. `moved`: cuts where some series would stop and others would not. `trace_repeats`: the same seed gave the
    same thinking with and without probes."""

    ways: tuple[ProbeSeries, ...]
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
        """Whether all series agree."""
        return self.largest <= EXACT and not self.answers_changed


async def measure_noise(
    setup: ProbeSetup, plain: TimedTrace, probed: TimedTrace, others: OtherEngines, threshold: float, sessions: int
) -> Noise:
    """Probe one trace in several ways. `plain` was generated without probes, `probed` with them. `others` open the same
    model in another way, by name; they come last because their number of threads may become that of every engine."""
    repeats, ids = plain.ids == probed.ids, plain.ids
    ways = [("while thinking", probed.probes), ("same probe repeated", probed.repeated)] if repeats else []
    ways.append(("read stretch by stretch", await _read(setup, ids)))
    ways.append(("new session at each cut", await _read_anew(setup, ids, sessions)))
    if sessions > 1:
        async with _other_sessions(setup, sessions - 1):
            ways.append((f"with {sessions - 1} other sessions", await _read(setup, ids)))
    for name, open_engine in others.items():
        ways.append((name, await _read_with(open_engine(), setup, ids)))
    return compare_series([ProbeSeries.of(*way) for way in ways], setup.cuts, threshold, repeats)


def compare_series(series: Sequence[ProbeSeries], cuts: tuple[int, ...], threshold: float, repeats: bool) -> Noise:
    """The noise of several series of the same probes."""
    at_cuts = list(zip(*(one.certainties for one in series), strict=True))
    answers_at_cuts = zip(*(one.answers for one in series), strict=True)
    largest = max(max(values) - min(values) for values in at_cuts)
    inner = [values for values in at_cuts if INNER[0] <= min(values) and max(values) <= INNER[1]]
    log_odds = max((_log_odds(max(values)) - _log_odds(min(values)) for values in inner), default=0.0)
    low, high = _band(threshold, log_odds if inner else None, largest)
    changed = sum(len(set(answers)) > 1 for answers in answers_at_cuts)
    moved = sum(min(values) < threshold <= max(values) for values in at_cuts)
    return Noise(tuple(series), cuts, largest, log_odds, changed, threshold, low, high, moved, repeats)


def _band(threshold: float, log_odds: float | None, largest: float) -> tuple[float, float]:
    if log_odds is None or not 0 < threshold < 1:
        return max(threshold - largest, 0.0), min(threshold + largest, 1.0)
    middle = _log_odds(threshold)
    return _certainty(middle - log_odds), _certainty(middle + log_odds)


def _log_odds(value: float) -> float:
    return math.log(value) - math.log1p(-value)


def _certainty(log_odds: float) -> float:
    return (1 + math.tanh(log_odds / 2)) / 2


async def _read(setup: ProbeSetup, ids: Sequence[int]) -> list[Probe]:
    """The trace appended to a new session, stretch by stretch, with a probe after each."""
    probes = []
    async with setup.session() as session:
        for at, step in zip(setup.cuts, setup.steps, strict=True):
            await session.append(ids[at - step : at])
            probes.append(await setup.probe(session, at))
    return probes


async def _read_with(engine: Engine, setup: ProbeSetup, ids: Sequence[int]) -> list[Probe]:
    try:
        await engine.connect()
        return await _read(replace(setup, engine=engine), ids)
    finally:
        await engine.close()


async def _read_anew(setup: ProbeSetup, ids: Sequence[int], sessions: int) -> list[Probe]:
    """A new session for each cut. Before it, every slot of the engine is filled with another prompt, so that no cached
    keys and values are used."""
    other = await setup.engine.prompt(OTHER_PROMPT)
    probes = []
    for at in setup.cuts:
        for _ in range(sessions):
            async with setup.session(other) as session:
                await session.think(1)
        async with setup.session() as session:
            await session.append(ids[:at])
            probes.append(await setup.probe(session, at))
    return probes


@asynccontextmanager
async def _other_sessions(setup: ProbeSetup, count: int) -> AsyncIterator[None]:
    """Other sessions that think in the meantime, each with its own seed."""
    tasks = [asyncio.create_task(_keep_thinking(setup, seed)) for seed in range(1, count + 1)]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _keep_thinking(setup: ProbeSetup, seed: int) -> None:
    """Think to the last cut again and again, until cancelled."""
    while True:
        async with setup.session(seed=seed) as session:
            await session.think(setup.cuts[-1])
