"""Several settings (rules, or values of a parameter) on the same questions, against the baseline.

One set of draws serves all settings, so the difference of any two is paired: both see the same questions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cgr.errors import UsageError
from cgr.lab.decide.arrays import Decisions, at_end
from cgr.lab.decide.columns import Columns
from cgr.lab.score import accuracy as scores
from cgr.lab.score.bootstrap import DRAWS, intervals, resampled
from cgr.lab.types import Bools, Floats, Interval
from cgr.records import Record

MARGIN = -1.0  # equal accuracy: the interval of the difference, in points, stays above this
LEAST = 2  # questions; there is no interval for one


@dataclass(frozen=True, slots=True)
class Score(Record):
    """One setting. Tokens are means over traces. Shares are of the baseline's thinking; net subtracts probe tokens."""

    accuracy: float
    ci95_accuracy: Interval
    diff_points: float
    ci95_diff_points: Interval
    gross_share: float
    ci95_gross_share: Interval
    net_share: float
    ci95_net_share: Interval
    thinking_tokens: float
    probe_tokens: float
    suffix_tokens: float
    stopped: float

    @property
    def equal(self) -> bool:
        """Equal accuracy: the interval of the difference is above the margin."""
        return self.ci95_diff_points[0] > MARGIN


@dataclass(frozen=True, eq=False)
class Totals:
    """Sums over graded traces; `traces` counts them.

    The first axis is the settings, the baseline first. A second axis, if there is one, is the questions or the draws.
    """

    traces: Floats
    right: Floats
    wrong: Floats
    thinking: Floats
    probing: Floats

    @property
    def accuracy(self) -> Floats:
        """The share of right answers."""
        return self.right / self.traces

    @property
    def diff_points(self) -> Floats:
        """The difference in accuracy to the baseline, in percentage points."""
        return (self.right - self.right[:1]) * (100 / self.traces)

    @property
    def gross(self) -> Floats:
        """The share of the baseline's thinking tokens that is saved."""
        return 1 - self.thinking / self._natural

    @property
    def cost(self) -> Floats:
        """Thinking tokens and tokens decoded by probes, as a share of the baseline's thinking tokens."""
        return (self.thinking + self.probing) / self._natural

    @property
    def net(self) -> Floats:
        """The share that is saved after probe tokens."""
        return 1 - self.cost

    @property
    def _natural(self) -> Floats:
        return np.maximum(self.thinking[:1], 1.0)

    def grade(self, penalty: float) -> Floats:
        """Grade for each trace: 1 for a right answer, minus the penalty for a wrong one, 0 where the rule gave up."""
        return (self.right - penalty * self.wrong) / self.traces

    def only(self, settings: Sequence[int]) -> Totals:
        """The baseline and these settings."""
        rows = [0, *settings]
        return Totals(self.traces, self.right[rows], self.wrong[rows], self.thinking[rows], self.probing[rows])

    def among(self, questions: Bools) -> Totals:
        """Some of the questions of a (settings, questions) total."""
        return Totals(*(values[:, questions] for values in vars(self).values()))

    def summed(self) -> Totals:
        """The sum over the second axis."""
        return Totals(*(values.sum(axis=1) for values in vars(self).values()))

    def resampled(self, draws: int = DRAWS) -> Totals:
        """(settings, draws): the sums over questions drawn with replacement, the same questions for all settings."""
        stacked = np.concatenate([*vars(self).values()])
        parts = [stacked @ counts.T for counts in resampled(self.traces.shape[1], draws)]
        ends = np.cumsum([len(values) for values in vars(self).values()])[:-1]
        return Totals(*np.split(np.concatenate(parts, axis=1), ends))


def by_question(columns: Columns, decided: Sequence[Decisions]) -> Totals:
    """(settings, questions): the sums of each question with a known answer."""
    here = scores.graded_questions(columns)

    def each(values: Sequence[NDArray[Any]]) -> Floats:
        return np.stack([scores.by_question(columns, one * columns.graded)[here] for one in values])

    return Totals(
        traces=each([columns.graded]),
        right=each([one.right & ~one.gave_up for one in decided]),
        wrong=each([~one.right & ~one.gave_up for one in decided]),
        thinking=each([one.at for one in decided]),
        probing=each([one.probe_tokens for one in decided]),
    )


@dataclass(frozen=True)
class Paired:
    """Settings on some questions: the totals, the same over draws of the questions, and the decisions on their traces.

    Settings are numbered from 0, which is the baseline.
    """

    total: Totals
    draws: Totals
    decided: tuple[Decisions, ...] = ()
    traces: Bools | None = None

    @classmethod
    def of(cls, sums: Totals, draws: int = DRAWS, decided: Sequence[Decisions] = (), traces: Bools | None = None) -> Paired:
        """The settings of a (settings, questions) total. `traces`: those of these questions, a flag for each."""
        return cls(sums.summed(), sums.resampled(draws), tuple(decided), traces)

    def only(self, settings: Sequence[int]) -> Paired:
        """The baseline and these settings."""
        kept = tuple(self.decided[place] for place in (0, *settings)) if self.decided else ()
        return Paired(self.total.only(settings), self.draws.only(settings), kept, self.traces)

    @cached_property
    def all(self) -> tuple[Score, ...]:
        """The score of the baseline, then of each setting."""
        columns: list[Sequence[Any]] = []
        for name in ("accuracy", "diff_points", "gross", "net"):
            columns += getattr(self.total, name).tolist(), intervals(getattr(self.draws, name))
        return tuple(Score(*shares, *self._means(one)) for *shares, one in zip(*columns, self.decided, strict=True))

    def _means(self, decided: Decisions) -> tuple[float, ...]:
        values = (decided.at, decided.probe_tokens, decided.suffix_tokens, decided.sure)
        return tuple(float(value[self.traces].mean()) for value in values)

    @property
    def scores(self) -> tuple[Score, ...]:
        """The score of each setting, without the baseline."""
        return self.all[1:]

    def behind(self, best: int) -> tuple[Interval, ...]:
        """For each setting but the baseline, the interval of the net saving of setting `best` minus its own."""
        net = self.draws.net[1:]
        return tuple(intervals(net[best] - net))

    def tied_with(self, best: int) -> tuple[int, ...]:
        """The other settings whose net saving does not differ from that of `best`: the interval holds 0."""
        return tuple(place for place, (low, high) in enumerate(self.behind(best)) if place != best and low <= 0 <= high)

    def best_net(self) -> int:
        """The setting with the largest net saving; the first among equals. Counted without the baseline."""
        return int(np.argmax(self.total.net[1:]))

    def best_equal(self) -> int | None:
        """The same among the settings with equal accuracy; None if there is none."""
        low = np.array([low for low, _ in intervals(self.draws.diff_points[1:])])
        return int(np.argmax(np.where(low > MARGIN, self.total.net[1:], -np.inf))) if (low > MARGIN).any() else None


def measure(columns: Columns, settings: Sequence[Decisions]) -> Paired:
    """These settings on all graded questions of a run. The baseline is the run at its full budget."""
    if scores.graded_questions(columns).sum() < LEAST:
        raise UsageError(
            f"The run {columns.info.name!r} has fewer than two questions with a known answer.",
            "An interval needs at least two; a useful one needs dozens.",
        )
    decided = (at_end(columns), *settings)
    return Paired.of(by_question(columns, decided), decided=decided, traces=columns.graded)


def split_questions(columns: Columns, share: float, names: Sequence[str] = ()) -> tuple[Bools, Bools]:
    """The graded questions to choose parameters on, and those to show: two flags for each question.

    The split is made by a hash of all `names` (by default, the questions of the columns), graded or not, so that two
    commands on the same run split alike. Both parts are all graded questions if the share is 0 or leaves fewer than two on
    a side.
    """
    everything = names or columns.questions
    ranked = sorted(everything, key=lambda name: blake2b(name.encode()).digest())
    chosen, graded = set(ranked[: round(share * len(ranked))]), scores.graded_questions(columns)
    tuning = np.array([name in chosen for name in columns.questions], dtype=np.bool_)
    parts = tuning & graded, ~tuning & graded
    return parts if share > 0 and min(part.sum() for part in parts) >= LEAST else (graded, graded)
