"""Accuracy, Grade and savings at the edges: full results by hand, splits that never change, and empty denominators."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from cgr.errors import UsageError
from cgr.lab.decide.arrays import at_end, first_sure
from cgr.lab.decide.columns import Columns
from cgr.lab.score import accuracy as scores
from tests.lab.runs import SIX_INFO, plausible, six, trace

SIX = Columns.of(six(), SIX_INFO)
TEN = Columns.of(*plausible(10, 1))


def graded_only(*names: str) -> Columns:
    """The six, of which only these questions have a known answer."""
    return Columns.of([one if one.question_id in names else replace(one, gold=None) for one in six()], SIX_INFO)


# Penalties


def test_penalties_are_sorted_and_kept_once() -> None:
    assert scores.check_penalties([1, 0.5, 0, 1e6, 0.5]) == (0, 0.5, 1, 1e6)


@pytest.mark.parametrize(("penalty", "shown"), [(-0.5, "-0.5"), (2e6, "2e+06"), (math.nan, "nan"), (math.inf, "inf")])
def test_a_penalty_below_0_or_too_large_is_refused(penalty: float, shown: str) -> None:
    with pytest.raises(UsageError) as caught:
        scores.check_penalties([0.5, penalty])
    assert caught.value.message == f"A penalty of {shown} is not valid."
    assert caught.value.hint == "A wrong answer costs 0 or more, such as 0.5."


# Sums and splits


def test_a_question_and_a_seed_without_traces_have_a_sum_of_0() -> None:
    more = replace(SIX, questions=(*SIX.questions, "d"), seeds=(*SIX.seeds, 2))
    assert scores.by_question(more, SIX.graded).tolist() == [2, 2, 2, 0]
    assert scores.by_seed(more, SIX.graded).tolist() == [3, 3, 0]


@pytest.mark.parametrize(
    ("share", "seed", "chosen"),
    [
        (0.5, None, ["q05", "q07", "q08", "q09", "q10"]),
        (0.5, 0, ["q05", "q07", "q08", "q09", "q10"]),
        (0.5, 1, ["q01", "q03", "q04", "q05", "q06"]),
        (0.3, 258, ["q01", "q05", "q10"]),
    ],
)
def test_a_split_stays_the_same_in_all_versions(share: float, seed: int | None, chosen: list[str]) -> None:
    """Weights that `cgr fit --share` learned are tested on the other questions later."""
    split = scores.split_questions(TEN, share) if seed is None else scores.split_questions(TEN, share, seed=seed)
    tuning, others = ([name for name, here in zip(TEN.questions, part, strict=True) if here] for part in split)
    assert tuning == chosen
    assert others == [name for name in TEN.questions if name not in chosen]


@pytest.mark.parametrize(
    ("share", "sizes"), [(0.0, (10, 10)), (0.1, (10, 10)), (0.2, (2, 8)), (0.8, (8, 2)), (0.9, (10, 10)), (1.0, (10, 10))]
)
def test_a_split_leaves_two_questions_on_each_side_or_is_none(share: float, sizes: tuple[int, int]) -> None:
    tuning, others = scores.split_questions(TEN, share)
    assert (tuning.sum(), others.sum()) == sizes


def test_a_split_ranks_all_questions_and_has_those_with_known_answers() -> None:
    names = [f"q{number:02}" for number in range(1, 21)]
    tuning, _ = scores.split_questions(TEN, 0.5, names)
    more = Columns.of(*plausible(20, 1))
    assert tuning.tolist() == scores.split_questions(more, 0.5)[0][:10].tolist()
    traces, info = plausible(10, 1)
    unknown = Columns.of([replace(one, gold=None) if one.question_id == "q05" else one for one in traces], info)
    tuning, others = scores.split_questions(unknown, 0.5)
    assert [name for name, here in zip(TEN.questions, tuning, strict=True) if here] == ["q07", "q08", "q09", "q10"]
    assert others.sum() == 5


# Accuracy and differences


def test_a_seed_with_one_graded_trace_has_an_accuracy() -> None:
    assert scores.accuracy_by_seed(graded_only("a"), SIX.final_right).tolist() == [1, 0]


def test_the_whole_comparison_by_hand() -> None:
    """`b` loses seed 0 and wins seed 1, and `a` wins seed 1: a mean over seeds of 0 and 1/2 questions."""
    found = scores.compare(SIX, first_sure(SIX, 0.96).right)
    half = 1.5 * math.tan(0.475 * math.pi)
    assert found.ci95_seeds == pytest.approx((0.5 - half, 0.5 + half))
    assert replace(found, ci95_seeds=None) == scores.Comparison(
        diff_mean=0.5,
        diff_points=100 * 0.5 * 2 / 6,
        diff_relative=0.25,
        equal=0,
        better=1,
        worse=1,
        ci95=(0.0, 1.5),
    )


def test_a_comparison_leaves_out_questions_without_a_known_answer() -> None:
    found = scores.compare(graded_only("b", "c"), first_sure(SIX, 0.96).right)
    assert (found.diff_mean, found.diff_points, found.diff_relative) == (0, 0, 0)
    assert (found.equal, found.better, found.worse, found.ci95) == (0, 1, 1, (0, 0))


@pytest.mark.parametrize(
    ("values", "half"),
    [([0.0, 2.0], 12.7062), ([1.0, 2.0, 3.0], 4.30265 / 3**0.5), ([0.0, 0.0, 2.0, 2.0], 3.18245 / 3**0.5)],
)
def test_the_interval_over_seeds_by_the_tables(values: list[float], half: float) -> None:
    mean = sum(values) / len(values)
    assert scores.seeds_interval(np.array(values)) == pytest.approx((mean - half, mean + half), rel=1e-5)


# Grade


def test_an_answer_at_the_end_is_sure_from_the_threshold_on() -> None:
    assert scores.sure_at_end(at_end(SIX), 0.9).tolist() == [True, True, True, True, False, True]
    assert scores.sure_at_end(at_end(SIX), 0.97).tolist() == [True, False, True, True, False, False]
    gave_up = replace(at_end(SIX), gave_up=np.array([True, False] * 3))
    assert scores.sure_at_end(gave_up, 0.9).tolist() == [False, True, False, True, False, True]


@pytest.mark.parametrize(
    ("when", "found"),
    [
        ([10] * 6, [3, 3, 3]),
        ([10, 11, 20, 21, 30, 31], [0.5, 1.5, 2.5]),
        ([31] * 6, [0, 0, 0]),
        ([20, 20, 20, 20, 20, scores.NEVER], [0, 2.5, 2.5]),
    ],
)
def test_answers_count_from_the_first_step_at_or_after_them(when: list[int], found: list[float]) -> None:
    every = np.ones(6, dtype=np.bool_)
    assert scores.cumulative(SIX, np.array(when), every, np.array([10, 20, 30])).tolist() == found


def test_a_final_answer_counts_from_one_token_after_the_end_on() -> None:
    """The second trace of `a` ends at 2000 tokens, sure and wrong; the first one is sure and right at 3000."""
    curve = scores.grade_over_budget(SIX, first_sure(SIX, 0.995), 0.995, 1.0, np.array([1999, 2000, 2001, 3000, 3501]))
    assert curve.tolist() == [0, 0, -0.5, 0, 0]


# Savings


def test_the_whole_savings_by_hand() -> None:
    """Of the questions, `a` saves 1500 of 5500 tokens, `b` 3000 of 8000 and `c` 800 of 2700."""
    found = scores.savings(SIX, first_sure(SIX, 0.96))
    assert found == scores.Savings(
        total=5300,
        per_seed=2650,
        per_question=5300 / 6,
        probe_tokens=33,
        suffix_tokens=0,
        net_total=5267,
        share=5300 / 16_200,
        net_share=5267 / 16_200,
        against_budget_total=13_100,
        against_budget_share=13_100 / 24_000,
        ci95_share=(1500 / 5500, 3000 / 8000),
        disagreement=0.5,
    )


def test_the_share_of_answers_that_differ_from_the_final_ones() -> None:
    assert scores.savings(SIX, at_end(SIX)).disagreement == 0
    agrees = np.array([True, False, True, True, True, True])
    assert scores.savings(SIX, replace(at_end(SIX), agrees=agrees)).disagreement == pytest.approx(1 / 6)


@pytest.mark.parametrize("budget", [0, 100])
def test_where_nothing_was_thought_nothing_is_saved(budget: int) -> None:
    silent = [trace(name, 0, "1", 0, "end_of_thinking", ("1", 0.9), budget=budget) for name in "ab"]
    columns = Columns.of(silent, SIX_INFO)
    found = scores.savings(columns, at_end(columns))
    assert (found.total, found.share, found.net_share, found.ci95_share) == (0, 0, 0, None)
    assert (found.against_budget_total, found.against_budget_share) == (2 * budget, float(budget > 0))
