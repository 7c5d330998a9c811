"""The oracle, head room and fixed budgets at the edges: full results by hand, ties in cost, one question, one token."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cgr.lab.decide.arrays import at_budget, at_end, first_sure
from cgr.lab.decide.columns import Columns
from cgr.lab.score.adaptive import (
    NOT_TO_BE_TRUSTED,
    NOTHING_TO_SAVE,
    FalseSureRow,
    FixedBudgets,
    Gain,
    Missed,
    first_cost,
    headroom,
    interpolated,
    missed,
    oracle_saving,
    prospect_sentences,
    prospects,
)
from tests.lab.runs import SIX_INFO, six, trace

SIX = Columns.of(six(), SIX_INFO)


@pytest.mark.parametrize(("final", "saving", "unsolved"), [("1", 0.0, 0.0), ("2", 1.0, 1.0)])
def test_one_token_of_thinking(final: str, saving: float, unsolved: float) -> None:
    one = Columns.of([trace("a", 0, "1", 1, "end_of_thinking", (final, 0.9), [(1, final, (0.9,), True)])], SIX_INFO)
    assert oracle_saving(one, one.graded) == saving
    assert missed(one, at_end(one), one.graded) == Missed(unsolved, 0.0, 0.0)
    assert headroom(one) == 0


# In words


@pytest.mark.parametrize(
    ("room", "row", "verdict", "lines"),
    [
        (None, FalseSureRow(0.99, 0, None), None, ()),
        (
            0.1234,
            FalseSureRow(0.99, 1, 0.0),
            None,
            (
                "Head room: 12.3% of the thinking comes after the last change of answer.",
                "False sureness at 0.99: 0.0% of 1 probe differ from the final answer.",
            ),
        ),
        (
            None,
            FalseSureRow(0.9, 1234, 0.25),
            f"{NOTHING_TO_SAVE} {NOT_TO_BE_TRUSTED}",
            (
                "False sureness at 0.9: 25.0% of 1,234 probes differ from the final answer.",
                "There is nothing to save here: head room is under 15%. Certainty is not to be",
                "trusted here: false sureness at 0.99 is above 5%.",
            ),
        ),
        (None, FalseSureRow(0.99, 2, None), f"{'a' * 40} {'b' * 39}", (f"{'a' * 40} {'b' * 39}",)),
        (None, FalseSureRow(0.99, 2, None), f"{'a' * 40} {'b' * 40}", ("a" * 40, "b" * 40)),
    ],
)
def test_sentences_in_lines_of_80_columns(
    room: float | None, row: FalseSureRow, verdict: str | None, lines: tuple[str, ...]
) -> None:
    assert prospect_sentences(room, row, verdict) == lines


def test_the_prospects_of_the_six() -> None:
    decided = {threshold: first_sure(SIX, threshold) for threshold in (0.99, 0.96)}
    found = prospects(SIX, decided)
    assert [row.threshold for row in found.adaptive] == [0.99, 0.96]
    for row in found.adaptive:
        gain = FixedBudgets.of(SIX).gain(decided[row.threshold])
        assert row.to_dict() == {"threshold": row.threshold, **gain.to_dict()}
    assert found.headroom == headroom(SIX)
    assert found.false_sure == (FalseSureRow(0.96, 6, 0.5), FalseSureRow(0.99, 2, 0.5))
    assert found.verdict == NOT_TO_BE_TRUSTED


def test_the_prospects_of_a_run_with_little_head_room() -> None:
    short = [trace(name, 0, "1", 1100, "end_of_thinking", ("1", 0.9), [(1000, "1", (0.9,), True)]) for name in "ab"]
    found = prospects(Columns.of(short, SIX_INFO), {})
    assert (found.adaptive, found.false_sure, found.verdict) == ((), (FalseSureRow(0.99, 0, None),), NOTHING_TO_SAVE)
    assert found.headroom == pytest.approx(1 / 11)


# The fixed budget of the same cost


def test_all_traces_are_the_default() -> None:
    every = FixedBudgets.of(SIX).traces
    assert every.dtype == np.bool_
    assert every.tolist() == [True] * 6


def test_one_question_has_a_gain_without_an_interval() -> None:
    """Three probes of three tokens; the second budget is the first with the right answer."""
    one = Columns.of(six()[:1], SIX_INFO)
    assert FixedBudgets.of(one).gain(first_sure(one, 0.99)) == Gain(3009.0, 1.0, 1.0, 0.0, None, 2000.0)


def test_two_questions_have_an_interval() -> None:
    two = Columns.of([one for one in six() if one.question_id != "c"], SIX_INFO)
    found = FixedBudgets.of(two).gain(first_sure(two, 0.99)).ci95
    assert found is not None
    assert found[0] < found[1]


def test_what_is_known_without_golds_and_without_a_grid() -> None:
    unknown = Columns.of([replace(one, gold=None) for one in six()], SIX_INFO)
    nothing = (None, None, None, None)
    assert FixedBudgets.of(unknown).gain(at_end(unknown)) == Gain(2700.0, None, *nothing)
    bare = Columns.of([replace(one, probes=()) for one in six() if one.thinking_tokens >= 3000], SIX_INFO)
    assert FixedBudgets.of(bare).gain(at_end(bare)) == Gain(11_500 / 3, 2 / 3, *nothing)


def test_a_rule_that_costs_as_much_as_the_smallest_budget_is_beside_it() -> None:
    smallest = at_budget(SIX, 1000)
    found = FixedBudgets.of(SIX).gain(smallest)
    assert (found.cost_mean, found.accuracy, found.fixed_accuracy) == pytest.approx((5900 / 6, 4 / 6, 4 / 6))
    assert found.gain_points == pytest.approx(0)
    assert found.ci95 == pytest.approx((0, 0), abs=1e-9)
    cheaper = replace(smallest, at=smallest.at - np.array([3, 0, 0, 0, 0, 0]))
    assert FixedBudgets.of(SIX).gain(cheaper) == Gain(5897 / 6, 4 / 6, None, None, None, 5900 / 6)


def test_the_baseline_gains_nothing_over_itself_if_no_thinking_passes_the_last_probe() -> None:
    """The budgets 3000 and 4000 cost the same. At 3000 the probe answers, which is wrong here; at 4000 the final answer."""
    probes = [(1000, "1", (0.5,), True), (2000, "1", (0.5,), True), (3000, "1", (0.5,), True)]
    ended = [trace(name, 0, "7", 3000, "end_of_thinking", ("7", 0.9), probes) for name in "ab"]
    columns = Columns.of(ended, SIX_INFO)
    assert FixedBudgets.of(columns).gain(at_end(columns)) == Gain(3000.0, 1.0, 1.0, 0.0, (0.0, 0.0), 3000.0)


@pytest.mark.parametrize(
    ("cost", "accuracy", "at", "found"),
    [
        ([1, 2, 2, 3], [0.1, 0.2, 0.4, 0.5], 1.5, 0.15),
        ([1, 2, 2, 3], [0.1, 0.2, 0.4, 0.5], 2, 0.4),
        ([1, 2, 2, 3], [0.1, 0.2, 0.4, 0.5], 2.5, 0.45),
        ([1, 2, 2], [0.1, 0.2, 0.4], 2, 0.4),
        ([1, 2, 2], [0.1, 0.2, 0.4], 2.1, 0.4),
        ([1, 2, 2], [0.1, 0.2, 0.4], 9, 0.4),
        ([10, 30], [0.2, 0.6], 20, 0.4),
        ([10, 30], [0.2, 0.6], 70, 0.6),
        ([1, 1, 2], [0.1, 0.3, 0.5], 0.5, 0.1),
        ([1, 1, 2], [0.1, 0.3, 0.5], 1, 0.3),
    ],
)
def test_of_budgets_that_cost_the_same_the_largest_counts(
    cost: list[float], accuracy: list[float], at: float, found: float
) -> None:
    rows = np.array([cost, [0.0, 50.0, 100.0, 100.0][: len(cost)]]), np.array([accuracy, [1.0] * len(cost)])
    assert interpolated(*rows, np.array([at, 25.0])).tolist() == pytest.approx([found, 1.0])


def test_an_accuracy_that_is_reached_but_for_rounding_costs_no_more_than_the_budget_that_reaches_it() -> None:
    assert first_cost(np.array([10.0, 20.0]), np.array([0.0, 1e-12]), 1.5e-12) == 20
    assert first_cost(np.array([10.0, 20.0]), np.array([0.5, 1.0]), 0.5 + 5e-13) == 10
