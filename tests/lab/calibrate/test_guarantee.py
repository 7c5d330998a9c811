"""Promises keep what they say: simulations with known risk, and on a run of the embedded model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.guarantee import DELTA, EPSILON, Outcome, Population, allowance, recorded, shapes, simulate
from cgr import Model
from cgr.lab.calibrate.losses import SelectiveLosses
from cgr.lab.calibrate.walk import Goal, walk
from cgr.lab.questions import load_questions
from cgr.lab.record.generate import Plan, generate
from cgr.lab.score import bounds
from cgr.settings import Settings

DRAWS = 300
SHAPES = shapes()


@pytest.mark.parametrize("population", SHAPES, ids=[one.name for one in SHAPES])
@pytest.mark.parametrize("questions", [50, 150, 500])
def test_a_promise_fails_in_at_most_delta_of_the_draws(population: Population, questions: int) -> None:
    assert simulate(population, questions, DRAWS).failed <= allowance(DRAWS)


def outcomes(questions: int) -> list[Outcome]:
    return [simulate(one, questions, DRAWS) for one in SHAPES]


def test_naive_choices_fail() -> None:
    """Without a loss among 50 questions, or with a loss of at most epsilon among 500, the risk is often above epsilon."""
    assert max(one.naive_failed for one in outcomes(50)) > 0.3
    assert min(one.plug_in_failed for one in outcomes(500)) > 0.2


def test_promises_are_made_where_the_risk_is_low() -> None:
    rising = simulate(SHAPES[0], 500, DRAWS)
    assert rising.without == 0
    assert rising.risk > 0.3 * EPSILON


def test_wrong_answers_among_several_traces() -> None:
    """The share of answered traces differs from question to question; the walk begins where enough are answered."""
    rng, failures, draws, steps = np.random.default_rng(3), 0, 300, 6
    shares, risks = np.linspace(0.2, 0.9, steps), EPSILON * np.array([0.3, 1.2, 0.5, 1.1, 1.3, 2.0])
    needed = bounds.questions_for_risk(EPSILON, 0, DELTA)
    for _ in range(draws):
        passing: list[bool | None] = []
        for share, risk in zip(shares, risks, strict=True):
            answered = rng.binomial(4, share, 400) / 4
            wrong = rng.binomial((4 * answered).astype(int), risk) / 4
            found = SelectiveLosses(wrong, answered)
            passing.append(found.p_value(EPSILON, DELTA) <= DELTA if answered.sum() >= needed else None)
        passed = walk(passing)
        failures += bool(risks[np.flatnonzero(passed)[-1]] > EPSILON) if any(passed) else 0
    assert failures / draws <= allowance(draws)


def test_promises_on_a_run_of_the_embedded_model(loaded: Model, tmp_path: Path) -> None:
    plan = Plan(load_questions("arithmetic", limit=24), seeds=2, settings=Settings(), probe=True)
    generate(tmp_path / "run", plan, loaded, sessions=2)
    population = recorded(tmp_path / "run", Goal(0.05))
    assert population.kind == bounds.BETTING
    assert len(population.risks) > 10
    assert simulate(population, 150, 200, epsilon=0.05).failed <= allowance(200)
