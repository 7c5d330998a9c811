"""The fixed sequence: what is to be promised, the values that are tried, and what each of them loses and saves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from cgr.calibration import METHODS, RISKS, SequenceStep
from cgr.errors import UnknownName, UsageError
from cgr.lab.calibrate.losses import ABSTAINS, NOT_MONOTONE, CalibrationQuestions, Losses
from cgr.lab.decide.arrays import Decisions
from cgr.lab.decide.columns import Columns
from cgr.lab.score import bootstrap
from cgr.lab.score.bounds import questions_for_risk
from cgr.rules import Rule
from cgr.rules.limits import CERTAINTY

EPSILON, CONFIDENCE, PENALTY = 0.01, 0.95, 1.0
# Thresholds of rules that compare a certainty, fixed before any data is seen; the most cautious first.
THRESHOLDS = (
    *(0.99999, 0.9999, 0.9995, 0.999, 0.998, 0.997, 0.995, 0.99, 0.985, 0.98, 0.97, 0.96, 0.95, 0.925),
    *(0.9, 0.85, 0.8, 0.75, 0.7, 0.6, 0.5),
)


@dataclass(frozen=True, slots=True)
class Goal:
    """What is to be promised: a risk of at most `epsilon`, with a confidence of 1 - `delta`. `penalty`: for `grade`."""

    epsilon: float = EPSILON
    delta: float = 1 - CONFIDENCE
    risk: str = "disagreement"
    method: str = "ltt"
    penalty: float = PENALTY

    def __post_init__(self) -> None:
        if self.risk not in RISKS:
            raise UnknownName.among("risk", self.risk, RISKS)
        if self.method not in METHODS:
            raise UnknownName.among("method", self.method, METHODS)
        if not 0 < self.epsilon < 1:
            raise UsageError(
                f"A loss of at most {self.epsilon:g} cannot be promised.", "Use more than 0 and less than 1, such as 0.01."
            )
        if not 0 < self.delta < 1:
            raise UsageError(
                f"A confidence of {1 - self.delta:g} is not possible.", "Use more than 0 and less than 1, such as 0.95."
            )
        if not 0 <= self.penalty < float("inf"):
            raise UsageError(f"A penalty of {self.penalty:g} is not valid.", "A wrong answer costs 0 or more.")
        if self.method == "crc" and self.risk in NOT_MONOTONE:
            raise UsageError(
                f"Conformal risk control cannot bound the risk {self.risk!r}.",
                "It needs a loss that only falls with caution: use --method ltt.",
            )


@dataclass(frozen=True, eq=False)
class Measured:
    """One value of the main parameter: its losses, and the tokens it saves."""

    value: float
    losses: Losses
    size: int
    decided: Decisions
    saved_share: float
    answered_share: float

    def saved_interval(self, questions: CalibrationQuestions) -> tuple[float, float] | None:
        """The 95% interval of the net saving, over questions."""
        net, natural = _net(questions.columns, self.decided), questions.columns.natural
        return bootstrap.of_ratio(questions.sums(net), questions.sums(natural))

    def is_tested(self, goal: Goal) -> bool:
        """Whether enough answers are given here that a test can pass. Where answers are withheld, the most cautious values
        give too few. This does not depend on which answers are wrong."""
        answers = self.answered_share * self.size
        return goal.risk not in ABSTAINS or answers >= questions_for_risk(goal.epsilon, 0, goal.delta)

    def p_value(self, goal: Goal) -> float | None:
        """The p-value; None for conformal risk control, and where nothing is tested."""
        tested = goal.method == "ltt" and self.is_tested(goal)
        return self.losses.p_value(goal.epsilon, goal.delta) if tested else None

    def bound(self, goal: Goal) -> float:
        """The upper bound of the risk; for conformal risk control, of its mean over calibration sets."""
        if goal.method == "ltt":
            return self.losses.upper(goal.delta)
        return (self.size * self.losses.mean + 1) / (self.size + 1)

    def passes(self, goal: Goal) -> bool | None:
        """Whether this value alone meets the goal; None if it is not tested."""
        if not self.is_tested(goal):
            return None
        p_value = self.p_value(goal)
        return self.bound(goal) <= goal.epsilon if p_value is None else p_value <= goal.delta

    def needed(self, goal: Goal) -> int | None:
        """The number of questions with which this value would meet the goal at the rate seen; None: more do not help."""
        if goal.method == "ltt":
            return self.losses.needed(goal.epsilon, goal.delta)
        rest = goal.epsilon - self.losses.mean
        return math.ceil((1 - goal.epsilon) / rest) if rest > 0 else None

    def step(self, goal: Goal, passed: bool) -> SequenceStep:
        """The record of this value."""
        return SequenceStep(
            self.value, self.losses.mean, self.p_value(goal), passed, self.saved_share, float(self.bound(goal))
        )


def sequence(rule: Rule) -> list[Rule]:
    """The rule with each value of its main parameter, the most cautious first. Values do not depend on any data."""
    if rule.main is None or not rule.grid:
        raise UsageError(f"The rule {rule.name!r} has no parameter to calibrate.", "`cgr rules --json` lists parameters.")
    kind = type(getattr(rule, rule.main))
    values: Sequence[float] = THRESHOLDS if is_certainty(rule) else tuple(reversed(rule.grid))
    return [replace(rule, **{rule.main: kind(value)}) for value in values]


def is_certainty(rule: Rule) -> bool:
    """Whether the main parameter is a certainty from which the rule stops."""
    return any(one.name == rule.main == "threshold" and one.metadata.get("limits") == CERTAINTY for one in fields(rule))


def walk(passing: Sequence[bool | None]) -> list[bool]:
    """Which values pass in a fixed sequence: all before the first that fails. None: not tested."""
    return [one is True and False not in passing[:place] for place, one in enumerate(passing)]


def measure(questions: CalibrationQuestions, decided: Decisions, rule: Rule, goal: Goal) -> Measured:
    """The decisions of one rule on these questions."""
    value = float(getattr(rule, str(rule.main)))
    threshold = value if goal.risk in ABSTAINS and is_certainty(rule) else None
    losses = questions.losses(goal.risk, decided, threshold, goal.penalty)
    natural = max(float(questions.sums(questions.columns.natural).sum()), 1.0)
    saved = float(questions.sums(_net(questions.columns, decided)).sum()) / natural
    answered = float(questions.means(questions.answered(decided, threshold)).mean())
    return Measured(value, losses, len(questions), decided, saved, answered)


def _net(columns: Columns, decided: Decisions) -> Any:
    return columns.natural - decided.at - decided.probe_tokens
