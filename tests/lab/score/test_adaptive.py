"""The oracle, head room, false sureness and the fixed budget of the same cost: by hand, and what always holds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cgr.lab.decide.arrays import at_budget, at_end, first_sure
from cgr.lab.decide.columns import Columns
from cgr.lab.score import accuracy as scores
from cgr.lab.score.adaptive import (
    NOT_TO_BE_TRUSTED,
    NOTHING_TO_SAVE,
    FalseSureRow,
    FixedBudgets,
    false_sure,
    first_cost,
    headroom,
    interpolated,
    missed,
    oracle_saving,
    oracle_stop,
    plain_verdict,
    prospect_sentences,
    prospects,
)
from tests.lab.runs import SIX_INFO, plausible, six

SIX = Columns.of(six(), SIX_INFO)
NATURAL = 16_200


def test_the_oracle_on_the_six() -> None:
    """Right for good from 2000, 3000 and 1000 on; two end wrong and stop at once; one has no probe."""
    assert oracle_stop(SIX).tolist() == [2000, 3000, 1000, 0, 0, 900]
    assert oracle_saving(SIX, SIX.graded) == pytest.approx(1 - 6900 / NATURAL)


def test_what_the_rule_misses_on_the_six() -> None:
    found = missed(SIX, first_sure(SIX, 0.99), SIX.graded)
    assert found.unsolved == pytest.approx((2000 + 3000) / NATURAL)
    assert found.late == pytest.approx((1000 + 1000 + 800 + 0) / NATURAL)
    assert found.probes == pytest.approx(40 / NATURAL)


@settings(max_examples=40)
@given(st.integers(0, 10_000), st.sampled_from((0.3, 0.9, 0.99, 1.0)))
def test_the_oracle_minus_what_is_missed_is_the_net_saving(chance: int, threshold: float) -> None:
    traces, info = plausible(5, 2, chance=chance)
    columns = Columns.of(traces, info)
    decided, everything = first_sure(columns, threshold), columns.graded
    found = missed(columns, decided, everything)
    net = scores.savings(columns, decided).net_share
    assert oracle_saving(columns, everything) - found.unsolved - found.late - found.probes == pytest.approx(net)


def test_head_room_of_the_six() -> None:
    """The answer stays from 2000, 3000 and 1000 on; elsewhere no probe has the final answer to the end."""
    assert headroom(SIX) == pytest.approx(1 - (2000 + 3000 + 1000 + 2000 + 4000 + 900) / NATURAL)


def test_head_room_needs_a_probe() -> None:
    assert headroom(Columns.of([replace(one, probes=()) for one in six()], SIX_INFO)) is None


def test_head_room_and_false_sureness_need_no_known_answers() -> None:
    unknown = Columns.of([replace(one, gold=None) for one in six()], SIX_INFO)
    assert headroom(unknown) == headroom(SIX)
    assert false_sure(unknown, 0.96) == false_sure(SIX, 0.96)


@settings(max_examples=40)
@given(st.integers(0, 10_000), st.floats(0, 1))
def test_no_rule_that_keeps_the_answers_saves_more_than_the_head_room(chance: int, threshold: float) -> None:
    """Stopping where all later answers are the final one keeps every answer; one probe earlier does not."""
    traces, info = plausible(4, 2, chance=chance)
    columns = Columns.of(traces, info)
    room, decided = headroom(columns), first_sure(columns, threshold)
    later = columns.present & (columns.at >= decided.at[:, None]) & decided.sure[:, None]
    assert room is not None
    if columns.agrees[later].all():
        assert scores.savings(columns, decided).share <= room + 1e-9


@pytest.mark.parametrize(("threshold", "probes", "share"), [(0.96, 6, 0.5), (0.99, 2, 0.5), (0.9999, 0, None)])
def test_false_sureness_of_the_six(threshold: float, probes: int, share: float | None) -> None:
    assert false_sure(SIX, threshold) == FalseSureRow(threshold, probes, share)


@pytest.mark.parametrize(
    ("room", "share", "said"),
    [
        (0.4, 0.01, None),
        (0.15, 0.05, None),
        (0.13, 0.01, NOTHING_TO_SAVE),
        (0.4, 0.33, NOT_TO_BE_TRUSTED),
        (0.13, 0.33, f"{NOTHING_TO_SAVE} {NOT_TO_BE_TRUSTED}"),
        (None, None, None),
    ],
)
def test_the_plain_verdict(room: float | None, share: float | None, said: str | None) -> None:
    row = FalseSureRow(0.99, 100, share)
    assert plain_verdict(room, row) == said
    lines = prospect_sentences(room, row, said)
    assert all(len(line) <= 80 for line in lines)
    assert " ".join(lines).endswith(said or "")


# The fixed budget of the same cost


def test_the_fixed_budget_of_the_same_cost_on_the_six() -> None:
    """14,700 thinking tokens and 40 of probes; the curve goes from 83.3% at 2,283 tokens to 66.7% at 2,700."""
    (row,) = prospects(SIX, {0.99: first_sure(SIX, 0.99)}).adaptive
    cost = 14_740 / 6
    fixed = 2.5 / 3 - (cost - 13_700 / 6) / (2700 - 13_700 / 6) * 0.5 / 3
    assert row.cost_mean == pytest.approx(cost)
    assert row.accuracy == pytest.approx(5 / 6)
    assert row.fixed_accuracy == pytest.approx(fixed)
    assert row.gain_points == pytest.approx(100 * (5 / 6 - fixed))
    assert row.fixed_cost_for_same_accuracy == pytest.approx(13_700 / 6)
    assert row.ci95 is not None
    assert row.ci95[0] <= (row.gain_points or 0) <= row.ci95[1]


def test_a_fixed_budget_gains_nothing_over_itself_in_any_draw() -> None:
    """The interval draws the curve anew each time: otherwise it would have a width here."""
    traces, info = plausible(12, 3, chance=4)
    columns = Columns.of(traces, info)
    for budget in (2000, 5000):
        found = FixedBudgets.of(columns).gain(at_budget(columns, budget))
        assert found.gain_points == pytest.approx(0)
        assert found.ci95 == pytest.approx((0, 0), abs=1e-9)


def test_some_traces_only() -> None:
    traces, info = plausible(12, 3, chance=4)
    columns = Columns.of(traces, info)
    names = set(columns.questions[:5])
    few = Columns.of([one for one in traces if one.question_id in names], info)
    here = np.array([columns.questions[question] in names for question in columns.question])
    wanted = FixedBudgets.of(few).gain(first_sure(few, 0.9))
    assert FixedBudgets.of(columns, here).gain(first_sure(columns, 0.9)) == wanted


def test_without_known_answers_there_is_a_cost_and_no_gain() -> None:
    unknown = Columns.of([replace(one, gold=None) for one in six()], SIX_INFO)
    found = FixedBudgets.of(unknown).gain(first_sure(unknown, 0.99))
    assert found.cost_mean == pytest.approx(14_740 / 6)
    assert (found.accuracy, found.fixed_accuracy, found.gain_points, found.ci95) == (None, None, None, None)


def test_without_a_grid_there_is_no_curve() -> None:
    bare = Columns.of([replace(one, probes=()) for one in six() if one.thinking_tokens >= 3000], SIX_INFO)
    found = FixedBudgets.of(bare).gain(at_end(bare))
    assert (found.fixed_accuracy, found.gain_points) == (None, None)
    assert found.accuracy is not None


def test_below_the_smallest_budget_that_can_be_decided_the_fixed_budget_is_unknown() -> None:
    """Probes at irregular positions leave only the largest budgets: what a smaller one gets is not known."""
    late = Columns.of([replace(one, probes=tuple(p for p in one.probes if p.at >= 3000)) for one in six()], SIX_INFO)
    stopped = replace(at_end(late), at=np.full(len(late), 100))
    found = FixedBudgets.of(late).gain(stopped)
    assert (found.fixed_accuracy, found.gain_points, found.ci95) == (None, None, None)
    assert found.accuracy is not None
    assert found.fixed_cost_for_same_accuracy is not None
    assert FixedBudgets.of(late).gain(at_end(late)).gain_points == pytest.approx(0)


@given(
    st.lists(st.tuples(st.integers(0, 100), st.floats(0, 1)), min_size=2, max_size=6, unique_by=lambda point: point[0]),
    st.floats(-10, 110),
)
def test_interpolation_is_linear_and_level_beyond_the_ends(points: list[tuple[float, float]], at: float) -> None:
    cost, accuracy = (np.array(values, dtype=np.float64) for values in zip(*sorted(points), strict=True))
    found = interpolated(cost[None], accuracy[None], np.array([at]))[0]
    assert found == pytest.approx(np.interp(at, cost, accuracy), abs=1e-6)


@pytest.mark.parametrize(("wanted", "cost"), [(0.1, 10), (0.2, 10), (0.3, 15), (0.6, 30), (0.7, None)])
def test_the_least_cost_of_an_accuracy(wanted: float, cost: float | None) -> None:
    """The curve falls once: the first crossing counts."""
    found = first_cost(np.array([10.0, 20.0, 25.0, 30.0]), np.array([0.2, 0.4, 0.3, 0.6]), wanted)
    assert found == (None if cost is None else pytest.approx(cost))
