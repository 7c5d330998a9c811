"""Several settings (rules, or values of a parameter) on the same questions, against the baseline.

One set of draws serves all settings, so the difference of any two is paired: both see the same questions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import compress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cgr.errors import UsageError
from cgr.lab.decide.arrays import Decisions, at_end
from cgr.lab.decide.columns import Columns
from cgr.lab.score import accuracy as scores
from cgr.lab.score import bounds
from cgr.lab.score.accuracy import LEAST
from cgr.lab.score.bootstrap import DRAWS, intervals, resampled
from cgr.lab.score.bounds import EQUAL, MARGIN
from cgr.lab.types import Bools, Floats, Interval
from cgr.records import Record


@dataclass(frozen=True, slots=True)
class Score(Record):
    """One setting. Tokens are means over traces. Shares are of the baseline's thinking; net subtracts probe tokens.

    `ci95_diff_points` is a bootstrap interval. `ci95_bound_points` is the bound of the same difference that keeps its width
    when nothing changed; the `verdict` follows from it: equal, worse, or cannot be told.
    """

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
    ci95_bound_points: Interval
    verdict: str

    @property
    def equal(self) -> bool:
        """Equal accuracy: the lower bound of the difference is above the margin."""
        return self.verdict == EQUAL


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


@dataclass(frozen=True, eq=False)
class Paired:
    """Settings on some questions: their sums, and the decisions on their traces. Settings are numbered from 0, which is the
    baseline. `names`: of the questions. `only_losses`: no change can be above 0, as for agreement. `whole`: the settings
    that these are some of (`rows`), whose draws they share."""

    sums: Totals
    draw_count: int = DRAWS
    decided: tuple[Decisions, ...] = ()
    traces: Bools | None = None
    names: tuple[str, ...] = ()
    only_losses: bool = False
    whole: Paired | None = None
    rows: tuple[int, ...] = ()

    @classmethod
    def of(
        cls,
        sums: Totals,
        draws: int = DRAWS,
        decided: Sequence[Decisions] = (),
        traces: Bools | None = None,
        names: Sequence[str] = (),
        *,
        only_losses: bool = False,
    ) -> Paired:
        """The settings of a (settings, questions) total. `traces`: those of these questions, a flag for each."""
        return cls(sums, draws, tuple(decided), traces, tuple(names), only_losses)

    def only(self, settings: Sequence[int]) -> Paired:
        """The baseline and these settings."""
        rows = (0, *settings)
        kept = tuple(self.decided[place] for place in rows) if self.decided else ()
        return replace(self, sums=self.sums.only(settings), decided=kept, whole=self, rows=rows)

    @cached_property
    def total(self) -> Totals:
        """The sums over the questions."""
        return self.sums.summed()

    @cached_property
    def draws(self) -> Totals:
        """The same for each draw of the questions."""
        return self.whole.draws.only(self.rows[1:]) if self.whole else self.sums.resampled(self.draw_count)

    @cached_property
    def changes(self) -> Floats:
        """(settings, questions): the change of the accuracy of each question, in the order in which betting reads them."""
        return question_changes(self.sums, self.names)

    @cached_property
    def kind(self) -> bounds.Kind:
        """The kind of the bounds: exact for one trace of each question, else by betting."""
        return bounds.kind_of(self.sums.traces)

    @cached_property
    def lows(self) -> Floats:
        """The lower bound of each setting's difference in accuracy, in points."""
        return self._bounds("lows", bounds.lower_changes)

    @cached_property
    def highs(self) -> Floats:
        """The upper bounds."""
        found = self._bounds("highs", bounds.upper_changes)
        return np.minimum(found, 0.0) if self.only_losses else found

    def _bounds(self, name: str, bound: Callable[[Floats, bounds.Kind], Floats]) -> Floats:
        if self.whole and name in vars(self.whole):
            found: Floats = getattr(self.whole, name)[list(self.rows)]
            return found
        values = 100 * bound(self.changes, self.kind)
        values[0] = 0.0
        return values

    def questions_needed(self, setting: int) -> int | None:
        """The number of questions that would settle the verdict on a setting at the rates seen."""
        return bounds.questions_needed(self.changes[setting], self.kind)

    @cached_property
    def all(self) -> tuple[Score, ...]:
        """The score of the baseline, then of each setting."""
        columns: list[Sequence[Any]] = []
        for name in ("accuracy", "diff_points", "gross", "net"):
            columns += getattr(self.total, name).tolist(), intervals(getattr(self.draws, name))
        ends = list(zip(self.lows.tolist(), self.highs.tolist(), strict=True))
        return tuple(
            Score(*(*shares, *self._means(one), bound, bounds.verdict(bound)))
            for *shares, one, bound in zip(*columns, self.decided, ends, strict=True)
        )

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
        """The setting of `most_saving`; None if even the difference seen there is below the margin."""
        place, _ = most_saving(self.lows[1:], self.total.net[1:])
        return place if self.total.diff_points[1 + place] > MARGIN else None


def most_saving(lows: Floats, net: Floats) -> tuple[int, bool]:
    """The setting with the largest net saving among those of equal accuracy, and True. If there is none: among those with
    the highest lower bound, and False. Of equal savings the last is taken: cautious settings come last."""
    equal = lows > MARGIN
    kept = equal if equal.any() else lows >= lows.max() - 1e-9
    worth = np.where(kept, np.round(net, 12), -np.inf)
    return len(worth) - 1 - int(np.argmax(worth[::-1])), bool(equal.any())


def most_saving_within(loss: float, points: Floats, net: Floats) -> int:
    """The setting with the largest net saving among those that lose at most this many points. If there is none: among those
    that lose least. Of equal savings the last is taken: cautious settings come last."""
    kept = points >= min(-loss, float(points.max())) - 1e-9
    worth = np.where(kept, np.round(net, 12), -np.inf)
    return len(worth) - 1 - int(np.argmax(worth[::-1]))


def question_changes(sums: Totals, names: Sequence[str] = ()) -> Floats:
    """(settings, questions): the mean change of each question against the baseline, in [-1, 1]. The questions are in the
    order in which betting reads them, by their names."""
    changes: Floats = (sums.right - sums.right[:1]) / sums.traces
    return changes[:, bounds.hash_order(names)] if names else changes


def graded_names(columns: Columns) -> tuple[str, ...]:
    """The names of the questions with a known answer."""
    return tuple(compress(columns.questions, scores.graded_questions(columns)))


def measure(columns: Columns, settings: Sequence[Decisions]) -> Paired:
    """These settings on all graded questions of a run. The baseline is the run at its full budget."""
    if scores.graded_questions(columns).sum() < LEAST:
        raise UsageError(
            f"The run {columns.info.name!r} has fewer than two questions with a known answer.",
            "An interval needs at least two; a useful one needs dozens.",
        )
    decided = (at_end(columns), *settings)
    names = graded_names(columns)
    return Paired.of(by_question(columns, decided), decided=decided, traces=columns.graded, names=names)
