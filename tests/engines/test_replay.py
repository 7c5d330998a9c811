"""Live equals replay, probe by probe, on the embedded model."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from cgr import Model, Settings
from cgr.drive.driver import Driver, Outcome
from cgr.engines.base import Engine, Sampling
from cgr.engines.replay import ReplayEngine
from cgr.probing import ProbeSpec
from cgr.reason import Abstention
from cgr.records import Decision, Probe, Trace
from cgr.rules import Cgr, Rule
from tests.support import QUESTION, OnlyWatches

BUDGET, INTERVAL = 160, 32
SPEC = ProbeSpec(max_answer_tokens=4)


async def decide(engine: Engine, rule: Rule, seed: int = 0, **options: Any) -> Outcome:
    session = await engine.open(Settings().prompt(QUESTION), Sampling(seed=seed), room=BUDGET + 32)
    abstention = options.pop("abstention", Abstention())
    return await Driver(engine, session, SPEC, **options).run(rule, BUDGET, abstention)


def player(outcome: Outcome, seed: int) -> ReplayEngine:
    decision = outcome.decision
    trace = Trace("q", seed, outcome.ids, outcome.thinking, "budget", BUDGET, decision.eos)
    if decision.stop_cause != "budget":
        trace = replace(trace, ended="end_of_thinking")
    return ReplayEngine(trace, decision.probes, decision.final)


def thresholds(probes: tuple[Probe, ...]) -> list[float]:
    """Well between the certainties that were seen, so that no rounding decides; and above and below them all."""
    seen = sorted({0.0, 1.0, *(probe.certainty for probe in probes)})
    gaps = sorted(pairwise(seen), key=lambda pair: pair[0] - pair[1])
    return [(low + high) / 2 for low, high in gaps[:3]]


def told(decision: Decision) -> tuple[object, ...]:
    return decision.stop_cause, decision.answer, decision.closed, decision.abstained, decision.thinking_tokens, decision.eos


@pytest.mark.parametrize("seed", [0, 1])
async def test_a_recording_decides_as_a_live_run(model: Model, seed: int) -> None:
    """Recorded once in full, replayed at any threshold: the same decision as a live run at it, probe by probe."""
    recording = player(await decide(model.engine, OnlyWatches(interval=INTERVAL), seed), seed)
    assert len(recording.probes) >= 1
    for threshold in thresholds(tuple(recording.probes.values())):
        rule = Cgr(threshold=threshold, interval=INTERVAL)
        abstention = Abstention("abstain", "abstain", threshold)
        live = (await decide(model.engine, rule, seed, full=True, abstention=abstention)).decision
        again = (await decide(recording, rule, seed, abstention=abstention)).decision
        assert told(again) == told(live)
        assert again.certainty == pytest.approx(live.certainty, abs=1e-5)
        for one, other in zip(again.probes, live.probes, strict=True):
            assert (one.at, one.answer, one.closed, one.decoded) == (other.at, other.answer, other.closed, other.decoded)
            assert one.probabilities == pytest.approx(other.probabilities, abs=1e-5)
            assert [token.id for token in one.tokens] == [token.id for token in other.tokens]


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("threshold", [0.99, 0.2])
async def test_a_live_run_replays_to_itself(model: Model, threshold: float, overlap: bool) -> None:
    """With its short cuts: a bound is enough where it was made."""
    rule = Cgr(threshold=threshold, interval=INTERVAL)
    live = await decide(model.engine, rule)
    assert (await decide(player(live, 0), rule, overlap=overlap)).decision == live.decision
