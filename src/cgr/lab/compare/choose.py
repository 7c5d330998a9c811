"""Which value of its parameter each rule is shown at, and which rule does best.

Values are chosen on some questions and shown on others: whoever looks at enough values will find one that was lucky.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b

import numpy as np

from cgr.lab.compare import hull as frontier
from cgr.lab.compare.result import ACCURACY, AREA, SAVING, Figure, Winner, grade_measure
from cgr.lab.score.paired import Totals, drawn, spans, total
from cgr.lab.types import Bools, Floats

MARGIN = -1.0  # points of accuracy that may be lost and still be called equal
LEAST = 2  # questions on each side of a split: from one no interval can be told


@dataclass(frozen=True, eq=False)
class Measured:
    """Some questions: their total, and the same over draws of them."""

    total: Totals
    drawn: Totals

    @classmethod
    def of(cls, questions: Totals, draws: int) -> Measured:
        return cls(total(questions), drawn(questions, draws))

    def only(self, settings: Sequence[int]) -> Measured:
        """These settings, after the baseline."""
        return Measured(self.total.only(settings), self.drawn.only(settings))


@dataclass(frozen=True, eq=False)
class Choice:
    """The setting that a rule is shown at by one measure (None: all of them count), and the figure there.

    `tuned`: it met what was asked where it was chosen; `counts`: where it is shown, too. Else the rule is out of it.
    """

    measure: str
    setting: int | None
    figure: float
    draws: Floats
    tuned: bool = True
    counts: bool = True

    def told(self, value: float | None) -> Figure:
        return Figure(self.measure, value, *((self.figure, spans(self.draws[None])[0]) if self.counts else (None, None)))


def halves(names: Sequence[str], share: float, graded: Bools | None = None) -> tuple[Bools, Bools]:
    """Questions to choose on, and questions to show: by a hash of their names, so that their order does not matter.

    Both are all of them where the share is 0, or leaves too few on a side. With `graded`, only these are in either, and in
    the same one as without.
    """
    everything = np.ones(len(names), dtype=np.bool_)
    counted = everything if graded is None else graded
    order = sorted(range(len(names)), key=lambda place: blake2b(names[place].encode()).digest())
    tuning = ~everything
    tuning[order[: round(share * len(names))]] = True
    parts = tuning & counted, ~tuning & counted
    return parts if share > 0 and min(part.sum() for part in parts) >= LEAST else (counted, counted)


def equal_accuracy(tuning: Measured) -> tuple[int, bool]:
    """The setting with the largest net saving among those whose interval stays above the margin.

    Where there is none, the one whose interval reaches least far down, and False.
    """
    low = np.array([span[0] for span in spans(tuning.drawn.diff_points[1:])])
    if (low > MARGIN).any():
        return 1 + _last_best(np.where(low > MARGIN, tuning.total.net[1:], -np.inf)), True
    return 1 + _last_best(low), False


def _last_best(values: Floats) -> int:
    """The last place of the largest value: cautious settings come last."""
    return len(values) - 1 - int(np.argmax(values[::-1]))


def choose(tuning: Measured, shown: Measured, penalties: Sequence[float]) -> tuple[Choice, ...]:
    """One for each measure, in their order; the settings are those of one rule, after the baseline."""
    saving, tuned = equal_accuracy(tuning)
    holds = tuned and spans(shown.drawn.only([saving]).diff_points)[1][0] > MARGIN
    path = frontier.corners(tuning.total)
    return (
        _at(SAVING, saving, shown, lambda totals: totals.net, tuned, holds),
        Choice(AREA, None, float(frontier.area(shown.total, path)), frontier.area(shown.drawn, path)),
        _best(ACCURACY, tuning, shown, lambda totals: totals.accuracy),
        *(_best(grade_measure(cost), tuning, shown, partial(Totals.grade, penalty=cost)) for cost in penalties if cost),
    )


By = Callable[[Totals], Floats]


def _best(measure: str, tuning: Measured, shown: Measured, by: By) -> Choice:
    """Where this is largest; among equals, where it is cheapest."""
    values, net = by(tuning.total), tuning.total.net
    best = max(range(1, len(values)), key=lambda one: (round(float(values[one]), 12), float(net[one])))
    return _at(measure, best, shown, by)


def _at(measure: str, setting: int, shown: Measured, by: By, tuned: bool = True, counts: bool = True) -> Choice:
    one = shown.only([setting])
    return Choice(measure, setting, float(by(one.total)[1]), by(one.drawn)[1], tuned, counts)


def winner(measure: str, choices: Mapping[str, Choice]) -> Winner:
    """The rule with the largest figure, and those it cannot be told from."""
    ranked = sorted((name for name, one in choices.items() if one.counts), key=lambda name: -choices[name].figure)
    if not ranked:
        return Winner(measure, None)
    first, others = ranked[0], ranked[1:]
    best = choices[first]
    if not others:
        return Winner(measure, first, best.figure)
    apart = dict(zip(others, spans(np.stack([best.draws - choices[name].draws for name in others])), strict=True))
    tied = tuple(name for name, (low, high) in apart.items() if low <= 0 <= high)
    second = others[0]
    return Winner(measure, first, best.figure, second, best.figure - choices[second].figure, apart[second], tied)
