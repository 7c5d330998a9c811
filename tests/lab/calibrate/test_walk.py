"""What can be asked for, the values that are tried, and what each of them loses and saves: in numbers known by hand."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pytest

from cgr.calibration import SequenceStep
from cgr.errors import UnknownName, UsageError
from cgr.lab.calibrate.losses import CalibrationQuestions, MeanLosses
from cgr.lab.calibrate.walk import THRESHOLDS, Goal, Measured, is_certainty, measure, sequence
from cgr.lab.decide.run import Run
from cgr.lab.score import bounds
from cgr.rules import Calibrated, Cgr, Deer, FixedBudget, Rule
from cgr.rules.limits import Limits, parameter
from tests.lab.calibrate.promised import INFO, INTERVAL, probe, run_of, trace, traces

RULE = Cgr(interval=INTERVAL)


# Goals


def test_the_usual_goal() -> None:
    usual = Goal()
    assert (usual.epsilon, usual.risk, usual.method, usual.penalty) == (0.01, "disagreement", "ltt", 1.0)
    assert usual.delta == pytest.approx(0.05)


@pytest.mark.parametrize(
    ("changes", "message", "hint"),
    [
        (
            {"risk": "lots"},
            "There is no risk called 'lots'.",
            "Did you mean 'lost'? Known: disagreement, grade, lost, wrong.",
        ),
        ({"method": "lt"}, "There is no method called 'lt'.", "Did you mean 'ltt'? Known: crc, ltt."),
    ],
)
def test_goals_with_unknown_names(changes: dict[str, Any], message: str, hint: str) -> None:
    with pytest.raises(UnknownName) as caught:
        Goal(**changes)
    assert (caught.value.message, caught.value.hint) == (message, hint)


IN_BETWEEN = "Use more than 0 and less than 1, such as {}."
CRC_HINT = "It needs a loss that only falls with caution: use --method ltt."


@pytest.mark.parametrize(
    ("changes", "message", "hint"),
    [
        ({"epsilon": 0.0}, "A loss of at most 0 cannot be promised.", IN_BETWEEN.format("0.01")),
        ({"epsilon": 1.0}, "A loss of at most 1 cannot be promised.", IN_BETWEEN.format("0.01")),
        ({"epsilon": 1.5}, "A loss of at most 1.5 cannot be promised.", IN_BETWEEN.format("0.01")),
        ({"delta": 0.0}, "A confidence of 1 is not possible.", IN_BETWEEN.format("0.95")),
        ({"delta": 1.0}, "A confidence of 0 is not possible.", IN_BETWEEN.format("0.95")),
        ({"delta": 1.25}, "A confidence of -0.25 is not possible.", IN_BETWEEN.format("0.95")),
        ({"penalty": -0.5}, "A penalty of -0.5 is not valid.", "A wrong answer costs 0 or more."),
        ({"penalty": math.inf}, "A penalty of inf is not valid.", "A wrong answer costs 0 or more."),
        ({"penalty": math.nan}, "A penalty of nan is not valid.", "A wrong answer costs 0 or more."),
        ({"method": "crc", "risk": "wrong"}, "Conformal risk control cannot bound the risk 'wrong'.", CRC_HINT),
        ({"method": "crc", "risk": "grade"}, "Conformal risk control cannot bound the risk 'grade'.", CRC_HINT),
    ],
)
def test_impossible_goals(changes: dict[str, Any], message: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        Goal(**changes)
    assert (caught.value.message, caught.value.hint) == (message, hint)


@pytest.mark.parametrize(
    "changes",
    [
        {"epsilon": 1e-9, "delta": 1e-9},
        {"epsilon": 0.999, "delta": 0.999},
        {"penalty": 0.0},
        {"penalty": 1e300},
        {"method": "crc"},
        {"method": "crc", "risk": "lost"},
        {"method": "ltt", "risk": "grade"},
    ],
)
def test_possible_goals(changes: dict[str, Any]) -> None:
    goal = Goal(**changes)
    assert {name: getattr(goal, name) for name in changes} == changes


# One value


def measured(losses: int, questions: int, *, answered: float = 1.0, saved: float = 0.25, value: float = 0.9) -> Measured:
    """This many losses among these questions. What was decided does not matter here."""
    values = np.zeros(questions)
    values[:losses] = 1
    decided = run_of(traces(2)).decide(RULE)
    return Measured(value, MeanLosses(values, bounds.EXACT), questions, decided, saved, answered)


def test_a_value_is_tested_where_answers_may_be_withheld_if_enough_are_given() -> None:
    """0.9**29 is below 0.05, and 0.9**28 is not."""
    goal = Goal(0.1, 0.05, "wrong")
    assert measured(0, 58, answered=0.5).is_tested(goal)
    assert not measured(0, 56, answered=0.5).is_tested(goal)
    assert measured(0, 14, answered=0.5).is_tested(replace(goal, delta=0.5))  # 0.9**7 is below 0.5
    assert not measured(0, 12, answered=0.5).is_tested(replace(goal, delta=0.5))
    assert measured(0, 2, answered=0.0).is_tested(replace(goal, risk="lost"))


def test_the_p_value_is_that_of_the_losses() -> None:
    goal = Goal(0.1, 0.2)
    assert measured(0, 10).p_value(goal) == pytest.approx(0.9**10)
    assert measured(1, 10).p_value(goal) == pytest.approx(0.9**10 + 10 * 0.1 * 0.9**9)
    bets = MeanLosses(np.array([0.0, 0.5] * 20), bounds.BETTING)
    assert (
        replace(measured(0, 40), losses=bets).p_value(Goal(0.4, 0.2)) == bets.p_value(0.4, 0.2) != bets.p_value(0.4, 0.05)
    )
    assert measured(0, 10).p_value(replace(goal, method="crc")) is None
    assert measured(0, 10, answered=0.1).p_value(replace(goal, risk="wrong")) is None


def test_the_bound_of_both_methods() -> None:
    assert measured(0, 10).bound(Goal(0.1, 0.2)) == pytest.approx(1 - 0.2**0.1)
    assert measured(3, 9).bound(Goal(0.1, method="crc")) == pytest.approx((3 + 1) / 10)


def test_a_p_value_equal_to_delta_passes() -> None:
    p = measured(0, 10).p_value(Goal(0.1))
    assert p is not None
    assert measured(0, 10).passes(Goal(0.1, p)) is True
    assert measured(0, 10).passes(Goal(0.1, math.nextafter(p, 0))) is False


def test_by_conformal_risk_control_a_bound_equal_to_epsilon_passes() -> None:
    goal = Goal(0.25, method="crc")
    assert measured(0, 3).passes(goal) is True
    assert measured(0, 2).passes(goal) is False


def test_a_value_with_too_few_answers_neither_passes_nor_fails() -> None:
    goal = Goal(0.1, 0.05, "wrong")
    assert measured(0, 56, answered=0.5).passes(goal) is None
    assert measured(0, 58, answered=0.5).passes(goal) is True
    assert measured(58, 58, answered=0.5).passes(goal) is False


@pytest.mark.parametrize(
    ("epsilon", "losses", "questions", "needed"),
    [(0.5, 1, 4, 2), (0.5, 3, 8, 4), (0.5, 3, 10, 3), (0.75, 1, 2, 1), (0.5, 1, 2, None), (0.5, 2, 2, None)],
)
def test_questions_needed_by_conformal_risk_control(
    epsilon: float, losses: int, questions: int, needed: int | None
) -> None:
    """The smallest n with (n * mean + 1) / (n + 1) <= epsilon."""
    assert measured(losses, questions).needed(Goal(epsilon, method="crc")) == needed


def test_questions_needed_with_confidence() -> None:
    assert measured(0, 5).needed(Goal(0.1, 0.05)) == 29
    assert measured(0, 5).needed(Goal(0.1, 0.5)) == 7
    assert measured(1, 5).needed(Goal(0.1, 0.5)) is None


def test_the_record_of_a_value() -> None:
    goal, one = Goal(0.1, 0.2), measured(0, 10)
    assert one.step(goal, True) == SequenceStep(0.9, 0.0, one.p_value(goal), True, 0.25, one.bound(goal))
    few = measured(1, 4, saved=-0.5, value=0.5)
    assert few.step(Goal(0.1, method="crc"), False) == SequenceStep(0.5, 0.25, None, False, -0.5, 0.4)


# The sequence


class WithoutGrid(Cgr):
    grid: ClassVar[tuple[float, ...]] = ()


class WithoutMain(Cgr):
    main: ClassVar[str | None] = None


@pytest.mark.parametrize("rule", [FixedBudget(), WithoutGrid(), WithoutMain()])
def test_a_rule_without_a_parameter_has_no_sequence(rule: Rule) -> None:
    with pytest.raises(UsageError) as caught:
        sequence(rule)
    assert caught.value.message == f"The rule {rule.name!r} has no parameter to calibrate."
    assert caught.value.hint == "`cgr rules --json` lists parameters."


class ByFloor(Calibrated):
    """Its main parameter is a certainty, but not the one from which it stops."""

    main: ClassVar[str | None] = "floor"


@dataclass(frozen=True, kw_only=True)
class WithAnyThreshold(Cgr):
    """Its threshold is not a certainty."""

    threshold: float = parameter(3.0, Limits(0))


@pytest.mark.parametrize(
    ("rule", "expected"),
    [(Cgr(), True), (Deer(), True), (Calibrated(), False), (ByFloor(), False), (WithAnyThreshold(), False)],
)
def test_which_rules_stop_from_a_certainty_on(rule: Rule, expected: bool) -> None:
    assert is_certainty(rule) is expected


def test_rules_without_a_certainty_are_tried_at_their_grid_in_reverse() -> None:
    rule = Calibrated(interval=INTERVAL, rare=2)
    assert sequence(rule) == [replace(rule, price=value) for value in sorted(Calibrated.grid)]
    assert [one.threshold for one in sequence(RULE) if isinstance(one, Cgr)] == [*THRESHOLDS]


# Measuring


def questions_of(run: Run, risk: str) -> CalibrationQuestions:
    columns = run.rule_columns()
    return CalibrationQuestions.of(columns, np.ones(len(columns.questions), dtype=np.bool_), risk)


def found(run: Run, rule: Rule, risk: str, penalty: float = 1.0) -> Measured:
    return measure(questions_of(run, risk), run.decide(rule), rule, Goal(risk=risk, penalty=penalty))


MIXED = run_of(
    [
        trace("stops", 0, ("7", 0.99)),
        trace("stops and changes", 0, ("3", 0.99)),
        trace("unsure at its end", 0, ("7", 0.5), certainty=0.5),
        trace("sure at its end", 0, ("3", 0.5), final="4"),
    ]
)
# Two stops at token 100 with one probe of 2 tokens, and two ends at token 400 with three of them
SAVED = (2 * (300 - 2) - 2 * 6) / 1600


@pytest.mark.parametrize(
    ("risk", "values", "answered"),
    [("disagreement", [0, 0, 0, 1], 1.0), ("lost", [0, 0, 0, 1], 1.0), ("wrong", [0, 1, 1], 0.75)],
)
def test_what_a_value_loses_saves_and_answers(risk: str, values: list[float], answered: float) -> None:
    one = found(MIXED, replace(RULE, threshold=0.9), risk)
    assert (one.value, one.size, one.answered_share) == (0.9, 4, answered)
    assert isinstance(one.losses, MeanLosses)
    assert sorted(one.losses.values.tolist()) == values
    assert one.saved_share == pytest.approx(SAVED)


def test_the_penalty_counts_in_grade() -> None:
    """A right answer becomes a wrong one in one question of four."""
    assert found(MIXED, replace(RULE, threshold=0.9), "grade", 3.0).losses.mean == pytest.approx((1 + 3) / 4)


def test_a_rule_without_a_certainty_withholds_no_answer() -> None:
    unsure = run_of([trace(f"q{n}", 0, ("7", 0.1), certainty=0.1) for n in range(2)])
    one = found(unsure, Calibrated(interval=INTERVAL, price=0.4), "wrong")
    assert (one.value, one.answered_share) == (0.4, 1.0)


def test_the_interval_of_the_saving_is_over_questions() -> None:
    same = run_of(traces(5, sure=0.99))
    one = found(same, RULE, "disagreement")
    assert one.saved_share == pytest.approx(298 / 400)
    assert one.saved_interval(questions_of(same, "disagreement")) == pytest.approx((298 / 400, 298 / 400))
    alone = run_of(traces(1, sure=0.99))
    assert found(alone, RULE, "disagreement").saved_interval(questions_of(alone, "disagreement")) is None


def test_a_thought_of_one_token_is_the_unit_of_its_saving() -> None:
    short = replace(trace("q", 0, ("7", 0.99)), thinking_tokens=1, final=probe(1, "7", 0.99), probes=(probe(1, "7", 0.99),))
    run = Run.of([short], replace(INFO, interval=1))
    assert found(run, Cgr(interval=1, threshold=0.9), "disagreement").saved_share == -2.0


def test_thinking_of_no_tokens_saves_nothing() -> None:
    empty = replace(trace("q", 0, ("7", 0.99)), thinking_tokens=0, final=probe(0, "7", 0.99), probes=())
    full = run_of([trace("p", 0, ("7", 0.99)), empty])
    columns = full.rule_columns()
    only = CalibrationQuestions.of(columns, np.array([False, True]), "disagreement")
    assert measure(only, full.decide(RULE), RULE, Goal()).saved_share == 0.0
