from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cgr.lab.decide.arrays import first_sure
from cgr.lab.decide.columns import Columns
from cgr.lab.decide.replay import replay
from cgr.lab.score import accuracy as scores
from cgr.lab.score import bootstrap
from cgr.lab.score.bounds import student_t
from cgr.lab.store.recorded import RecordedTrace
from cgr.reason import Abstention
from cgr.rules import Cgr
from tests.lab.decide.test_replay import INFO, INTERVAL, LEVELS, runs
from tests.lab.runs import SIX_INFO, plausible, six


def columns_of_six() -> Columns:
    return Columns.of(six(), SIX_INFO)


def without_golds() -> Columns:
    return Columns.of([replace(one, gold=None) for one in six()], SIX_INFO)


# Accuracy


def test_correct_counts_questions_and_accuracy_is_their_share() -> None:
    columns = columns_of_six()
    assert scores.correct_by_seed(columns, columns.final_right).tolist() == [3, 1]
    assert scores.correct_mean(columns, columns.final_right) == 2
    assert scores.accuracy(columns, columns.final_right) == pytest.approx(2 / 3)
    spread = scores.spread(scores.accuracy_by_seed(columns, columns.final_right))
    assert (spread.sd, spread.low, spread.high) == pytest.approx((2 / 3 / 2**0.5, 1 / 3, 1))


def test_questions_without_gold_count_nowhere_in_accuracy() -> None:
    columns = Columns.of([replace(one, gold=None) if one.question_id == "b" else one for one in six()], SIX_INFO)
    assert scores.correct_mean(columns, columns.final_right) == 1.5
    assert scores.accuracy(columns, columns.final_right) == 0.75
    assert scores.graded_questions(columns).tolist() == [True, False, True]
    assert scores.savings(columns, first_sure(columns, 0.96)).total == 5300


def test_a_missing_trace_is_not_a_wrong_one() -> None:
    columns = Columns.of(six()[:-1], SIX_INFO)
    assert scores.accuracy(columns, columns.final_right) == pytest.approx(3 / 5)
    assert scores.accuracy_by_seed(columns, columns.final_right).tolist() == [1, 0]


def test_without_golds_there_is_nothing_to_say() -> None:
    columns = without_golds()
    assert scores.correct_mean(columns, columns.final_right) is None
    assert scores.accuracy(columns, columns.final_right) is None
    assert scores.grade(columns, columns.final_right, 1.0) is None
    assert scores.compare(columns, columns.final_right) == scores.Comparison()
    assert scores.accuracy_interval(columns, columns.final_right) is None
    assert scores.spread(scores.accuracy_by_seed(columns, columns.final_right)) == scores.Spread()


def test_one_seed_has_no_deviation() -> None:
    assert scores.spread(np.array([0.5])) == scores.Spread(None, 0.5, 0.5)


def test_a_difference_is_counted_seed_by_seed() -> None:
    columns = columns_of_six()
    found = scores.compare(columns, first_sure(columns, 0.96).right)
    assert (found.equal, found.better, found.worse) == (0, 1, 1)
    assert (found.diff_mean, found.diff_relative) == (0.5, 0.25)
    assert found.diff_points == pytest.approx(100 / 6)


def test_nothing_right_has_no_ratio() -> None:
    columns = Columns.of([replace(one, gold="999") for one in six()], SIX_INFO)
    assert scores.compare(columns, first_sure(columns, 0.96).right).diff_relative is None


@given(runs(), st.sampled_from(LEVELS))
def test_equal_better_and_worse_are_all_seeds(traces: list[RecordedTrace], threshold: float) -> None:
    columns = Columns.of(traces, INFO)
    found = scores.compare(columns, first_sure(columns, threshold).right)
    assert [found.equal, found.better, found.worse] != [None] * 3
    assert sum(filter(None, (found.equal, found.better, found.worse))) == len(columns.seeds)


# Grade


@given(runs(), st.sampled_from(LEVELS[1:]), st.sampled_from((0.0, 0.25, 1.0)))
def test_grade_at_a_step_is_a_rerun_with_that_budget(traces: list[RecordedTrace], threshold: float, penalty: float) -> None:
    columns = Columns.of(traces, INFO)
    curve = scores.grade_over_budget(columns, first_sure(columns, threshold), threshold, penalty, columns.steps)
    quiet = Abstention("abstain", "abstain", threshold)
    for step, value in zip(columns.steps.tolist(), curve.tolist(), strict=True):
        total = 0.0
        for one in traces:
            made = replay(Cgr(threshold=threshold, interval=INTERVAL), one, abstention=quiet, budget=step)
            total += 0.0 if made.abstained else 1.0 if made.closed and made.answer == "7" else -penalty
        assert value == pytest.approx(total / len(columns.seeds))


def test_grade_counts_the_wrong_against_the_right() -> None:
    columns = columns_of_six()
    assert scores.grade(columns, columns.final_right, 0) == 2
    assert scores.grade(columns, columns.final_right, 0.25) == 1.75
    assert scores.grade(columns, columns.final_right, 1) == 1
    nobody = np.zeros(6, dtype=np.bool_)
    assert scores.grade(columns, columns.final_right, 1, nobody) == 0


def test_thinking_that_ended_at_a_step_has_not_ended_before_it() -> None:
    """The second trace of `a` ends at 2000 tokens, sure and wrong: its answer counts from 3000 on."""
    columns = columns_of_six()
    curve = scores.grade_over_budget(columns, first_sure(columns, 0.98), 0.98, 1.0, columns.steps)
    assert curve.tolist() == [0, 0.5, 0.5]


# Savings


def test_savings_are_against_the_natural_length_and_the_budget() -> None:
    columns = columns_of_six()
    found = scores.savings(columns, first_sure(columns, 0.96))
    assert (found.total, found.per_seed, found.probe_tokens, found.net_total) == (5300, 2650, 33, 5267)
    assert found.per_question == pytest.approx(883.333333)
    assert found.share == pytest.approx(0.32716, abs=1e-6)
    assert found.against_budget_total == 13100
    assert found.against_budget_share == pytest.approx(13100 / 24000)


def test_tokens_of_the_suffix_are_counted_apart() -> None:
    traces = [replace(one, probes=tuple(replace(p, suffix_ids=(1, 2, 3)) for p in one.probes)) for one in six()]
    columns = Columns.of(traces, SIX_INFO)
    found = scores.savings(columns, first_sure(columns, 0.96))
    assert found.suffix_tokens == 3 * 10
    assert found.probe_tokens == 33


def test_probes_can_cost_more_than_they_save() -> None:
    columns = columns_of_six()
    found = scores.savings(columns, first_sure(columns, 1.0))
    assert found.total == 0
    assert found.net_total == -found.probe_tokens < 0


def test_the_same_questions_are_drawn_for_both_sides() -> None:
    """Unpaired, the interval of a difference that is the same on each question would be wide."""
    traces, info = plausible(20, 3)
    columns = Columns.of(traces, info)
    found = scores.compare(columns, columns.final_right)
    assert found.ci95 == (0, 0)
    low, high = scores.accuracy_interval(columns, columns.final_right) or (0, 0)
    assert high - low > 0.1


@pytest.mark.parametrize(("freedom", "value"), [(1, 12.7062), (2, 4.3027), (7, 2.3646), (9, 2.2622), (30, 2.0423)])
def test_students_t_is_that_of_the_tables(freedom: int, value: float) -> None:
    assert student_t(freedom) == pytest.approx(value, abs=5e-5)


@pytest.mark.parametrize("seeds", [8, 9, 10])
def test_the_interval_over_seeds_covers_95_percent(seeds: int) -> None:
    """Thirty questions, of which a seed gains some and loses some. A bootstrap of so few seeds covers 85 to 90%."""
    rng, draws, gain, loss = np.random.default_rng(seeds), 3000, 0.06, 0.10
    chances = rng.random((draws, seeds, 30))
    changes = ((chances < gain).astype(float) - (chances > 1 - loss)).sum(axis=2)
    truth = 30 * (gain - loss)

    def covered(intervals: list[tuple[float, float] | None]) -> float:
        return float(np.mean([one is not None and one[0] <= truth <= one[1] for one in intervals]))

    assert 0.94 <= covered([scores.seeds_interval(row) for row in changes]) <= 0.965
    assert covered([bootstrap.of_mean(row, draws=400) for row in changes[:1000]]) < 0.925


def test_one_seed_has_no_interval_and_equal_seeds_have_one_without_width() -> None:
    assert scores.seeds_interval(np.array([2.0])) is None
    assert scores.seeds_interval(np.array([2.0, 2.0, 2.0])) == (2.0, 2.0)
    low, high = scores.compare(Columns.of(*plausible()), Columns.of(*plausible()).final_right).ci95_seeds or (1, 1)
    assert (low, high) == (0, 0)
