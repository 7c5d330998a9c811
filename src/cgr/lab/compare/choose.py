"""Which value of its parameter each rule is shown at, which rule is best, and the frontier of a rule.

Values are chosen on some questions and shown on others: among many values, one is always lucky.

A frontier is the upper hull of a rule's settings, of the baseline (all tokens, its accuracy) and of nothing (no tokens, no
answer): the accuracy that is reached if two settings are mixed at random. Its axis is the share of the baseline's tokens
that is spent, probes included, from 0 to 1. After the best setting it stays level. The area under it is the accuracy
averaged over all shares; for the baseline alone it is half its accuracy. It hardly depends on how far a rule's grid
reaches.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from cgr.lab.compare.result import ACCURACY, AREA, SAVING, Figure, Winner, grade_measure
from cgr.lab.score.bootstrap import interval, intervals
from cgr.lab.score.paired import MARGIN, Paired, Totals
from cgr.lab.types import Floats

Corner = tuple[float, float, int]
By = Callable[[Totals], Floats]
NOTHING = -1  # the corner without tokens and answers


@dataclass(frozen=True, eq=False)
class Choice:
    """The setting at which a rule is shown by one measure (None: all of them), and its figure there.

    `tuned`: the setting met the condition where it was chosen; `counts`: also where it is shown. Otherwise the rule cannot
    win by this measure.
    """

    measure: str
    setting: int | None
    figure: float
    draws: Floats
    tuned: bool = True
    counts: bool = True

    def as_figure(self, value: float | None) -> Figure:
        """The entry in compare.json. `value`: of the parameter at this setting."""
        return Figure(self.measure, value, *((self.figure, interval(self.draws)) if self.counts else (None, None)))


def equal_accuracy(tuning: Paired) -> tuple[int, bool]:
    """The setting with the largest net saving among those of equal accuracy, and True. If there is none: the one whose
    interval reaches least far down, and False."""
    low = np.array([span[0] for span in intervals(tuning.draws.diff_points[1:])])
    if (low > MARGIN).any():
        return 1 + _last_best(np.where(low > MARGIN, tuning.total.net[1:], -np.inf)), True
    return 1 + _last_best(low), False


def _last_best(values: Floats) -> int:
    """The last place of the largest value: cautious settings come last."""
    return len(values) - 1 - int(np.argmax(values[::-1]))


def choose(tuning: Paired, shown: Paired, penalties: Sequence[float]) -> tuple[Choice, ...]:
    """The choices for one rule, one for each measure. The settings are those of the rule, after the baseline."""
    saving, tuned = equal_accuracy(tuning)
    holds = tuned and intervals(shown.draws.only([saving]).diff_points)[1][0] > MARGIN
    path = corners(tuning.total)
    return (
        _at(SAVING, saving, shown, lambda totals: totals.net, tuned, holds),
        Choice(AREA, None, float(area(shown.total, path)), area(shown.draws, path)),
        _best(ACCURACY, tuning, shown, lambda totals: totals.accuracy),
        *(_best(grade_measure(cost), tuning, shown, partial(Totals.grade, penalty=cost)) for cost in penalties if cost),
    )


def _best(measure: str, tuning: Paired, shown: Paired, by: By) -> Choice:
    """The setting with the largest value; among equals, the cheapest."""
    values, net = by(tuning.total), tuning.total.net
    best = max(range(1, len(values)), key=lambda one: (round(float(values[one]), 12), float(net[one])))
    return _at(measure, best, shown, by)


def _at(measure: str, setting: int, shown: Paired, by: By, tuned: bool = True, counts: bool = True) -> Choice:
    one = shown.only([setting])
    return Choice(measure, setting, float(by(one.total)[1]), by(one.draws)[1], tuned, counts)


def winner(measure: str, choices: Mapping[str, Choice]) -> Winner:
    """The rule with the largest figure, and the rules that do not differ from it."""
    ranked = sorted((name for name, one in choices.items() if one.counts), key=lambda name: -choices[name].figure)
    if not ranked:
        return Winner(measure, None)
    first, others = ranked[0], ranked[1:]
    best = choices[first]
    if not others:
        return Winner(measure, first, best.figure)
    leads = dict(zip(others, intervals(np.stack([best.draws - choices[name].draws for name in others])), strict=True))
    tied = tuple(name for name, (low, high) in leads.items() if low <= 0 <= high)
    second = others[0]
    return Winner(measure, first, best.figure, second, best.figure - choices[second].figure, leads[second], tied)


def corners(totals: Totals) -> tuple[int, ...]:
    """The settings on the frontier, from `NOTHING` to the most accurate; 0 is the baseline."""
    cost, accuracy = totals.cost.tolist(), totals.accuracy.tolist()
    points = [(x, y, one) for one, (x, y) in enumerate(zip(cost, accuracy, strict=True)) if x <= 1]
    hull: list[Corner] = []
    for point in sorted([(0.0, 0.0, NOTHING), *points], key=lambda point: point[:2]):
        while len(hull) > 1 and not _turns_down(hull[-2], hull[-1], point):
            hull.pop()
        hull.append(point)
    best = max(range(len(hull)), key=lambda place: hull[place][1])
    return tuple(corner for _, _, corner in hull[: best + 1])


def _turns_down(a: Corner, b: Corner, c: Corner) -> bool:
    return (b[0] - a[0]) * (c[1] - a[1]) < (c[0] - a[0]) * (b[1] - a[1])


def area(totals: Totals, path: Sequence[int]) -> Floats:
    """The area under the line through these settings, for the total or for each draw."""
    settings = totals.only([one for one in path if one != NOTHING])
    cost, accuracy = (_from_nothing(values) for values in (settings.cost, settings.accuracy))
    widths, heights = np.diff(cost, axis=0), (accuracy[1:] + accuracy[:-1]) / 2
    summed: Floats = (widths * heights).sum(axis=0) + (1 - cost[-1]) * accuracy[-1]
    return summed


def _from_nothing(values: Floats) -> Floats:
    """The values with that of the baseline, which is first, replaced by 0."""
    return np.concatenate([np.zeros_like(values[:1]), values[1:]])
