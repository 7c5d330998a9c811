"""Losses of questions, in numbers known by hand, and their p-values and bounds."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from cgr.errors import UnknownName
from cgr.lab.calibrate.losses import CalibrationQuestions, MeanLosses, SelectiveLosses
from cgr.lab.decide.arrays import Decisions
from cgr.lab.decide.run import Run
from cgr.lab.score import bounds
from cgr.rules import Cgr
from tests.lab.calibrate.promised import INTERVAL, run_of, trace

RULE = Cgr(interval=INTERVAL, threshold=0.9)


# Means


def test_no_losses_have_bounds_in_closed_form() -> None:
    none = MeanLosses(np.zeros(10), bounds.EXACT)
    assert (none.count, none.mean, none.lower(0.2)) == (0, 0, 0)
    assert none.upper(0.2) == pytest.approx(1 - 0.2**0.1)
    assert none.p_value(0.1, 0.2) == pytest.approx(0.9**10)
    assert (none.needed(0.1, 0.05), none.needed(0.1, 0.5)) == (29, 7)


def test_only_losses_have_bounds_in_closed_form() -> None:
    every = MeanLosses(np.ones(10), bounds.EXACT)
    assert (every.count, every.mean, every.upper(0.2)) == (10, 1, 1)
    assert every.lower(0.2) == pytest.approx(0.2**0.1)
    assert every.p_value(0.1, 0.2) == 1
    assert every.needed(0.1, 0.2) is None


@pytest.mark.parametrize("kind", [bounds.EXACT, bounds.BETTING])
def test_without_questions_nothing_is_known(kind: bounds.Kind) -> None:
    empty = MeanLosses(np.zeros(0), kind)
    assert (empty.count, empty.mean, empty.p_value(0.1, 0.05)) == (0, 0, 1)
    assert (empty.lower(0.05), empty.upper(0.05), empty.needed(0.1, 0.05)) == (0, 1, None)


def test_a_scaled_risk_is_bounded_as_its_mean_is() -> None:
    """Values from 0 to 1 are a risk from -2 to 2."""
    values = np.array([0.0, 0.5, 1.0, 0.0])
    scaled = MeanLosses(values, bounds.BETTING, scale=4, offset=2)
    assert (scaled.mean, scaled.count) == (-0.5, -2)
    assert scaled.upper(0.3) == pytest.approx(4 * bounds.risk_upper(values, bounds.BETTING, 0.3) - 2)
    assert scaled.lower(0.3) == pytest.approx(4 * bounds.risk_lower(values, bounds.BETTING, 0.3) - 2)
    assert scaled.p_value(0.1, 0.3) == bounds.risk_p_value(values, 2.1 / 4, bounds.BETTING, 0.3)
    assert scaled.needed(0.1, 0.3) == bounds.questions_to_promise(values, 2.1 / 4, bounds.BETTING, 0.3)
    assert MeanLosses(np.zeros(10), bounds.EXACT, 4, 2).p_value(0.1, 0.05) == pytest.approx(0.475**10)


@pytest.mark.parametrize(("share", "needed"), [(1.0, 29), (0.5, 58), (0.3, 97)])
def test_where_few_questions_are_answered_more_are_needed(share: float, needed: int) -> None:
    assert MeanLosses(np.zeros(5), bounds.EXACT, share=share).needed(0.1, 0.05) == needed


# Wrong answers among those given, with several traces of a question


def test_the_share_of_wrong_answers_among_those_given() -> None:
    some = SelectiveLosses(np.array([0.25, 0.0]), np.array([0.5, 0.0]))
    assert (some.count, some.mean, some.kind) == (0.25, 0.5, bounds.BETTING)
    none = SelectiveLosses(np.zeros(2), np.zeros(2))
    assert (none.count, none.mean) == (0, 0)


SELECTIVE = SelectiveLosses(np.array([0.0, 0.5, 0.0, 0.25] * 20), np.array([1.0, 1.0, 0.0, 0.5] * 20))


@pytest.mark.parametrize("delta", [0.05, 0.3])
def test_the_bounds_are_the_last_values_that_are_refuted(delta: float) -> None:
    low, high = SELECTIVE.lower(delta), SELECTIVE.upper(delta)
    assert 0 < low < SELECTIVE.mean < high < 1
    assert SELECTIVE.p_value(high, delta) <= delta < SELECTIVE.p_value(high - 1e-9, delta)
    refuted = [_lower_of_rescaled(level, delta) >= level for level in (low, low + 1e-9)]
    assert refuted == [True, False]


def _lower_of_rescaled(level: float, delta: float) -> float:
    rescaled = SELECTIVE.wrong + level * (1 - SELECTIVE.answered)
    return bounds.risk_lower(rescaled, bounds.BETTING, delta)


def test_where_every_answer_is_given_the_bounds_are_those_of_the_mean() -> None:
    wrong = np.array([0.0, 0.5, 0.0, 0.25] * 20)
    selective, plain = SelectiveLosses(wrong, np.ones(80)), MeanLosses(wrong, bounds.BETTING)
    assert selective.p_value(0.3, 0.2) == pytest.approx(plain.p_value(0.3, 0.2))
    assert selective.upper(0.2) == pytest.approx(plain.upper(0.2), abs=1e-6)
    assert selective.lower(0.2) == pytest.approx(plain.lower(0.2), abs=1e-6)
    assert selective.needed(0.2, 0.2) == plain.needed(0.2, 0.2) != plain.needed(0.2, 0.05)


def test_without_wrong_answers_the_lower_bound_is_zero() -> None:
    assert SelectiveLosses(np.zeros(5), np.ones(5)).lower(0.05) == 0


def test_without_answers_nothing_is_refuted() -> None:
    assert SelectiveLosses(np.zeros(5), np.zeros(5)).upper(0.05) == 1


# Questions

SEVERAL = [
    trace("a", 0, ("7", 0.99)),
    trace("b", 0, ("3", 0.99)),
    trace("b", 1, ("7", 0.99)),
    trace("c", 0, ("7", 0.99), gold=None),
    trace("d", 0, ("3", 0.5), certainty=0.5),
]


def questions_of(run: Run, risk: str, kept: list[bool] | None = None) -> CalibrationQuestions:
    columns = run.rule_columns()
    flags = [True] * len(columns.questions) if kept is None else kept
    return CalibrationQuestions.of(columns, np.array(flags, dtype=np.bool_), risk)


@pytest.mark.parametrize(
    ("risk", "kept", "expected", "flags"),
    [
        ("disagreement", [True] * 4, {"a": 1, "b": 2, "c": 1, "d": 1}, [True] * 5),
        ("lost", [True] * 4, {"a": 1, "b": 2, "d": 1}, [True, True, True, False, True]),
        ("disagreement", [False, True, True, False], {"b": 2, "c": 1}, [False, True, True, True, False]),
        ("grade", [False, True, True, False], {"b": 2}, [False, True, True, False, False]),
        ("wrong", [False, False, True, False], {}, [False] * 5),
    ],
)
def test_which_questions_count(risk: str, kept: list[bool], expected: dict[str, int], flags: list[bool]) -> None:
    """In hash order, with the number of their traces; for risks that need known answers, those that have one."""
    questions = questions_of(run_of(SEVERAL), risk, kept)
    names = [questions.columns.questions[place] for place in questions.order]
    present = [*expected]
    assert names == [present[place] for place in bounds.hash_order(present)]
    assert dict(zip(names, questions.sizes.tolist(), strict=True)) == expected
    assert (len(questions), questions.traces.tolist()) == (len(expected), flags)


def test_sums_and_means_are_those_of_the_traces_that_count() -> None:
    questions = questions_of(run_of(SEVERAL), "disagreement", [False, True, True, False])
    names = [questions.columns.questions[place] for place in questions.order]
    values = np.array([10.0, 1.0, 2.0, 4.0, 20.0])
    assert dict(zip(names, questions.sums(values).tolist(), strict=True)) == {"b": 3, "c": 4}
    assert dict(zip(names, questions.means(values).tolist(), strict=True)) == {"b": 1.5, "c": 4}


def test_the_kind_follows_from_the_number_of_traces() -> None:
    assert questions_of(run_of(SEVERAL), "lost").kind == bounds.BETTING
    assert questions_of(run_of(SEVERAL), "lost", [True, False, True, True]).kind == bounds.EXACT


def by_name(questions: CalibrationQuestions, values: object) -> dict[str, float]:
    assert isinstance(values, np.ndarray)
    names = [questions.columns.questions[place] for place in questions.order]
    return dict(zip(names, values.tolist(), strict=True))


@pytest.mark.parametrize("risk", ["disagreement", "lost"])
def test_losses_of_changes_are_means_over_traces(risk: str) -> None:
    run = run_of([one for one in SEVERAL if one.gold])
    questions = questions_of(run, risk)
    losses = questions.losses(risk, run.decide(RULE), None, 1.0)
    assert isinstance(losses, MeanLosses)
    assert by_name(questions, losses.values) == {"a": 0, "b": 0.5, "d": 0}
    assert (losses.kind, losses.scale, losses.offset, losses.share) == (bounds.BETTING, 1, 0, 1)


def test_wrong_answers_with_several_traces() -> None:
    run = run_of(SEVERAL)
    questions = questions_of(run, "wrong")
    losses = questions.losses("wrong", run.decide(RULE), 0.9, 1.0)
    assert isinstance(losses, SelectiveLosses)
    assert by_name(questions, losses.wrong) == {"a": 0, "b": 0.5, "d": 0}
    assert by_name(questions, losses.answered) == {"a": 1, "b": 1, "d": 0}


ONE_EACH = [
    trace("right", 0, ("7", 0.99)),
    trace("wrong", 0, ("3", 0.99)),
    trace("withheld", 0, ("3", 0.5), final="4", certainty=0.5),
    trace("late", 0, ("3", 0.5), final="4", certainty=0.95),
]


def test_wrong_answers_with_one_trace_are_among_those_given() -> None:
    run = run_of(ONE_EACH)
    questions = questions_of(run, "wrong")
    losses = questions.losses("wrong", run.decide(RULE), 0.9, 1.0)
    assert isinstance(losses, MeanLosses)
    assert (sorted(losses.values.tolist()), losses.kind, losses.share) == ([0, 1, 1], bounds.EXACT, 0.75)
    nothing = questions.losses("wrong", run.decide(replace(RULE, threshold=1.0)), 1.0, 1.0)
    assert (nothing.count, nothing.mean, nothing.upper(0.05), nothing.needed(0.1, 0.05)) == (0, 0, 1, None)


def given_up(decided: Decisions, *traces: int) -> Decisions:
    """The same where the rule gave up on these traces."""
    flags = np.zeros(len(decided.at), dtype=np.bool_)
    flags[list(traces)] = True
    return replace(decided, gave_up=flags, sure=decided.sure & ~flags, right=decided.right & ~flags)


def test_which_traces_are_answered() -> None:
    """By a stop, or at the end with a certainty of at least the threshold; not where the rule gave up."""
    run = run_of(ONE_EACH)
    questions, decided = questions_of(run, "wrong"), run.decide(RULE)
    assert questions.answered(decided, None).tolist() == [True] * 4
    assert questions.answered(decided, 0.9).tolist() == [True, True, False, True]
    assert questions.answered(decided, 0.95).tolist() == [True, True, False, True]
    assert questions.answered(decided, 0.96).tolist() == [True, True, False, False]
    late = replace(decided, certainty=np.zeros(4))
    assert questions.answered(late, 0.9).tolist() == [True, True, False, False]
    assert questions.answered(given_up(decided, 0, 2), None).tolist() == [False, True, False, True]
    assert questions.answered(given_up(decided, 0, 2), 0.4).tolist() == [False, True, False, True]


@pytest.mark.parametrize("penalty", [0.0, 0.5, 2.0])
def test_grade_of_each_question(penalty: float) -> None:
    """A right answer that becomes wrong loses 1 + p, one that is given up loses 1; a wrong one that is given up wins p."""
    run = run_of(ONE_EACH)
    questions = questions_of(run, "grade")
    losses = questions.losses("grade", given_up(run.decide(RULE), 0, 2), None, penalty)
    assert isinstance(losses, MeanLosses)
    span = 1 + penalty
    assert (losses.kind, losses.scale, losses.offset, losses.share) == (bounds.BETTING, 2 * span, span, 1)
    risks = by_name(questions, losses.values * losses.scale - losses.offset)
    assert risks == pytest.approx({"right": 1, "wrong": span, "withheld": -penalty, "late": 0})
    assert losses.mean == pytest.approx((1 + span - penalty) / 4)
    assert math.isclose(losses.count, 2.0)


def test_an_unknown_risk() -> None:
    run = run_of(ONE_EACH)
    with pytest.raises(UnknownName) as caught:
        questions_of(run, "lost").losses("lots", run.decide(RULE), None, 1.0)
    assert caught.value.message == "There is no risk called 'lots'."
    assert caught.value.hint == "Did you mean 'lost'? Known: disagreement, grade, lost, wrong."
