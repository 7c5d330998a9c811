"""The confidence sequence of audits: its money, its bounds, and how often it is wrong."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.audit import alarms
from cgr.lab.score.bounds import log_wealth
from cgr.lab.score.sequential import (
    BLOCK,
    RATIOS,
    evidence_above,
    evidence_below,
    factors,
    risk_bounds,
    unspent,
    with_draw,
)
from tests.support import python


def blocks_of(losses: list[bool]) -> tuple[int, ...]:
    blocks: tuple[int, ...] = ()
    for count, loss in enumerate(losses):
        blocks = with_draw(blocks, count, loss)
    return blocks


def drawn(seed: int, risk: float, count: int) -> list[bool]:
    found: list[bool] = (np.random.default_rng(seed).random(count) < risk).tolist()
    return found


@pytest.mark.parametrize("mean", [0.01, 0.05, 0.4])
def test_the_money_is_that_of_the_bets_of_compare_and_calibrate(mean: float) -> None:
    """Every bet from every start, one by one, by the code of the other bounds."""
    losses = drawn(1, 2 * mean, 3 * BLOCK + 17)
    values = np.array(losses, dtype=np.float64)
    total = unspent(4)
    for block in range(4):
        share = unspent(block) - unspent(block + 1)
        for ratio in RATIOS:
            lost, _ = factors(mean, ratio)
            bet = (lost - 1) / (1 - mean)
            rest = values[None, block * BLOCK :]
            wealth = log_wealth(rest, np.array([mean]), np.full_like(rest, bet))
            total += share / len(RATIOS) * math.exp(wealth[0, -1])
    assert evidence_above(blocks_of(losses), len(losses), mean) == pytest.approx(total, rel=1e-9)


@given(st.floats(0.001, 0.9), st.sampled_from([*RATIOS, *(1 / one for one in RATIOS), 0.0]))
def test_a_bet_is_fair(mean: float, ratio: float) -> None:
    lost, kept = factors(mean, ratio)
    assert min(lost, kept) >= 0
    assert mean * lost + (1 - mean) * kept == pytest.approx(1)


@given(st.lists(st.booleans(), max_size=3 * BLOCK), st.floats(0.01, 0.2))
def test_bounds(losses: list[bool], delta: float) -> None:
    blocks = blocks_of(losses)
    assert sum(blocks) == sum(losses)
    low, high = risk_bounds(blocks, len(losses), delta)
    assert 0 <= low < high <= 1
    if losses:
        assert low <= np.mean(losses) <= high
    # the lower bound passes a value exactly when the evidence against it is enough
    for value in (0.01, 0.1, 0.5):
        if abs(low - value) > 1e-9:
            assert (low > value) == (evidence_above(blocks, len(losses), value) >= 1 / delta)


def test_nothing_is_known_at_first() -> None:
    assert risk_bounds((), 0, 0.05) == (0.0, 1.0)
    assert evidence_above((), 0, 0.01) == 1.0
    assert evidence_below(0, 0, 0.01) == 1.0


def test_bounds_become_narrow() -> None:
    widths = []
    for count in (100, 1000, 10_000):
        low, high = risk_bounds(blocks_of(drawn(3, 0.05, count)), count, 0.05)
        assert low < 0.05 < high
        widths.append(high - low)
    assert widths[0] > 2 * widths[1] > 4 * widths[2]


def test_much_evidence_is_no_overflow() -> None:
    blocks = (BLOCK,) * 400
    assert evidence_above(blocks, 400 * BLOCK, 0.01) > 1e90
    low, high = risk_bounds(blocks, 400 * BLOCK, 0.05)
    assert low > 0.99
    assert high == pytest.approx(1)


def test_the_simulation_is_this_code() -> None:
    """`benchmarks.audit` computes many watches at once; here it is checked against one at a time."""
    risks = np.array([0.02] * 100 + [0.2] * 100)
    found = alarms(np.random.default_rng(5), risks, 30, 0.05, 0.05)
    rng = np.random.default_rng(5)
    rows = np.concatenate([rng.random((30, min(BLOCK, 200 - start))) for start in range(0, 200, BLOCK)], axis=1) < risks
    for row, at in zip(rows.tolist(), found.tolist(), strict=True):
        blocks: tuple[int, ...] = ()
        first = -1
        for count, loss in enumerate(row):
            blocks = with_draw(blocks, count, loss)
            if evidence_above(blocks, count + 1, 0.05) >= 20:
                first = count + 1
                break
        assert first == at


@pytest.mark.parametrize("risk", [0.25, 1.0])
def test_false_alarms_are_rarer_than_delta(risk: float) -> None:
    """At the edge of the promise, looked at after each of 4,000 audits. At most 5% are allowed; 2% are usual."""
    found = alarms(np.random.default_rng(7), np.full(4000, risk * 0.02), 600, 0.02, 0.05)
    assert (found > 0).mean() <= 0.05


def test_a_change_is_found_also_after_a_long_time_without_one() -> None:
    before, after = 3000, 3000
    risks = np.array([0.005] * before + [0.06] * after)
    found = alarms(np.random.default_rng(8), risks, 200, 0.02, 0.05)
    late = found[found > before] - before
    assert (found < 0).mean() == 0
    assert np.median(late) < 700


def test_it_needs_no_numpy() -> None:
    done = python(
        "import sys; import cgr.lab.score.sequential; import cgr.server.audit.state; print('numpy' in sys.modules)"
    )
    assert done.stdout.strip() == "False"
