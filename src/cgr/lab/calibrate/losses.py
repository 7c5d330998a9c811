"""What a rule loses on each question, for each kind of risk, and the p-value and the bounds of that risk.

The unit is the question: the loss of a question is the mean over its traces. The statistics are those of
`cgr.lab.score.bounds`, which also decide about equal accuracy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from cgr.errors import UnknownName
from cgr.lab.decide.arrays import Decisions
from cgr.lab.decide.columns import Columns
from cgr.lab.score import bounds
from cgr.lab.score.accuracy import by_question, sure_at_end
from cgr.lab.types import Bools, Floats, Ints

NEEDS_GOLDS = ("lost", "wrong", "grade")
ABSTAINS = ("wrong",)
NOT_MONOTONE = ("wrong", "grade")  # losses that do not only fall with caution
_HALVINGS = 40


class Losses(Protocol):
    """The losses of one setting on some questions."""

    @property
    def kind(self) -> bounds.Kind: ...

    @property
    def count(self) -> float:
        """The losses seen, in questions."""

    @property
    def mean(self) -> float:
        """The risk that was seen."""

    def p_value(self, epsilon: float, delta: float) -> float:
        """The p-value of "the risk is above epsilon"."""

    def upper(self, delta: float) -> float:
        """The upper bound of the risk."""

    def lower(self, delta: float) -> float:
        """The lower bound of the risk."""

    def needed(self, epsilon: float, delta: float) -> int | None:
        """The number of questions that would prove the risk at the rate seen."""


@dataclass(frozen=True, eq=False)
class MeanLosses:
    """Losses whose mean is the risk. `values`: one for each question, in [0, 1], in hash order. The risk is `scale` times
    their mean, minus `offset`. `share`: the share of the questions that have a loss at all (an answer)."""

    values: Floats
    kind: bounds.Kind
    scale: float = 1.0
    offset: float = 0.0
    share: float = 1.0

    @property
    def count(self) -> float:
        """The losses seen, in questions."""
        return self._risk(float(self.values.mean())) * len(self.values) if len(self.values) else 0.0

    @property
    def mean(self) -> float:
        """The risk that was seen."""
        return self._risk(float(self.values.mean())) if len(self.values) else 0.0

    def p_value(self, epsilon: float, delta: float) -> float:
        """The p-value of "the risk is above epsilon"; 1 without questions."""
        return bounds.risk_p_value(self.values, self._level(epsilon), self.kind, delta) if len(self.values) else 1.0

    def upper(self, delta: float) -> float:
        """The upper bound of the risk."""
        return self._risk(bounds.risk_upper(self.values, self.kind, delta)) if len(self.values) else 1.0

    def lower(self, delta: float) -> float:
        """The lower bound of the risk."""
        return self._risk(bounds.risk_lower(self.values, self.kind, delta)) if len(self.values) else 0.0

    def needed(self, epsilon: float, delta: float) -> int | None:
        """The number of questions that would prove the risk at the rate seen."""
        if not len(self.values):
            return None
        found = bounds.questions_to_promise(self.values, self._level(epsilon), self.kind, delta)
        return found if found is None else int(np.ceil(found / self.share))

    def _risk(self, level: float) -> float:
        return self.scale * level - self.offset

    def _level(self, risk: float) -> float:
        return (risk + self.offset) / self.scale


@dataclass(frozen=True, eq=False)
class SelectiveLosses:
    """Wrong answers among those given, where questions have several traces. `wrong` and `answered`: shares of the traces
    of each question, in hash order. "The risk is at most epsilon" is the same as "the mean of (wrong - epsilon) * answered
    is at most 0"; with epsilon added, each value is in [0, 1]."""

    wrong: Floats
    answered: Floats
    kind: bounds.Kind = bounds.BETTING

    @property
    def count(self) -> float:
        """The losses seen, in questions."""
        return float(self.wrong.sum())

    @property
    def mean(self) -> float:
        """The risk that was seen."""
        return self.count / max(float(self.answered.sum()), 1e-12)

    def p_value(self, epsilon: float, delta: float) -> float:
        """The p-value of "the risk is above epsilon"."""
        return bounds.risk_p_value(self._values(epsilon), epsilon, self.kind, delta)

    def upper(self, delta: float) -> float:
        """The upper bound of the risk: the smallest one that is refuted."""
        low, high = 0.0, 1.0
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            low, high = (low, middle) if self.p_value(middle, delta) <= delta else (middle, high)
        return high

    def lower(self, delta: float) -> float:
        """The lower bound of the risk: the largest one that is refuted from above."""
        low, high = 0.0, 1.0
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            refuted = bounds.risk_lower(self._values(middle), self.kind, delta) >= middle
            low, high = (middle, high) if refuted else (low, middle)
        return low

    def needed(self, epsilon: float, delta: float) -> int | None:
        """The number of questions that would prove the risk at the rate seen."""
        return bounds.questions_to_promise(self._values(epsilon), epsilon, self.kind, delta)

    def _values(self, epsilon: float) -> Floats:
        return self.wrong - epsilon * self.answered + epsilon


@dataclass(frozen=True, eq=False)
class CalibrationQuestions:
    """The questions that a promise is made from, in hash order. `traces`: a flag for each trace that counts."""

    columns: Columns
    traces: Bools
    order: Ints
    sizes: Floats

    @classmethod
    def of(cls, columns: Columns, kept: Bools, risk: str) -> CalibrationQuestions:
        """The kept questions (a flag for each); for a risk that needs known answers, those of their traces that have
        one."""
        traces = kept[columns.question] & (columns.graded if risk in NEEDS_GOLDS else True)
        sizes = by_question(columns, traces)
        present = np.flatnonzero(sizes)
        ranks = bounds.hash_order([columns.questions[place] for place in present])
        return cls(columns, traces, present[ranks], sizes[present[ranks]])

    def __len__(self) -> int:
        return len(self.order)

    @property
    def kind(self) -> bounds.Kind:
        """Exact for one trace of each question, else betting: by the shape of the data, never by the result."""
        return bounds.kind_of(self.sizes)

    def sums(self, values: Floats | Ints | Bools) -> Floats:
        """The sum over the traces of each question."""
        return by_question(self.columns, values * self.traces)[self.order]

    def means(self, values: Floats | Ints | Bools) -> Floats:
        """The mean over the traces of each question."""
        return self.sums(values) / self.sizes

    def losses(self, risk: str, decided: Decisions, threshold: float | None, penalty: float) -> Losses:
        """What these decisions lose. `threshold`: answers below it are withheld, for the risks that abstain."""
        answered = self.answered(decided, threshold)
        match risk:
            case "disagreement":
                return MeanLosses(self.means(~decided.agrees), self.kind)
            case "lost":
                return MeanLosses(self.means(self.columns.final_right & ~decided.right), self.kind)
            case "wrong":
                return self._selective(answered & ~decided.right, answered)
            case "grade":
                return self._grade(decided.right & answered, ~decided.right & answered, penalty)
        raise UnknownName.among("risk", risk, ("disagreement", *NEEDS_GOLDS))

    def answered(self, decided: Decisions, threshold: float | None) -> Bools:
        """The traces that are answered: by a stop, or at the end with enough certainty."""
        given = ~decided.gave_up
        return given if threshold is None else given & (decided.sure | sure_at_end(decided, threshold))

    def _selective(self, wrong: Bools, answered: Bools) -> Losses:
        if self.kind == bounds.BETTING:
            return SelectiveLosses(self.means(wrong), self.means(answered))
        given = self.means(answered) > 0
        return MeanLosses(self.means(wrong)[given], bounds.EXACT, share=float(given.mean()))

    def _grade(self, right: Bools, wrong: Bools, penalty: float) -> Losses:
        """How far Grade falls below that of answering everything: from -(1 + p) to 1 + p."""
        full = np.where(self.columns.final_right, 1.0, -penalty)
        lost = self.means(full - right + penalty * wrong)
        span = 1 + penalty
        return MeanLosses((lost + span) / (2 * span), bounds.BETTING, 2 * span, span)
