"""The best trade that a rule offers, and the area under it.

The axis is the share of the baseline's tokens that is spent, probes included, from 0 to 1. A rule's frontier begins at
nothing (no tokens, no answer) and is the upper hull of the rule's settings and of the baseline (all tokens, its accuracy):
what is reached on average if two settings are mixed by a coin. Past its best setting it stays level: tokens need not be
spent. The area under it is the accuracy reached, averaged over all allowances of tokens; the baseline alone comes to half
its accuracy. So it is one range for every rule, and it hardly matters how far a rule's grid happens to reach.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cgr.lab.score.paired import Totals
from cgr.lab.types import Floats

Corner = tuple[float, float, int]
NOTHING = -1


def corners(totals: Totals) -> tuple[int, ...]:
    """The settings on the frontier, from `NOTHING` to the most accurate, the baseline among them."""
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
    """Under the line through these settings, for each draw (or the one total)."""
    settings = totals.only([one for one in path if one != NOTHING])
    cost, accuracy = (_from_nothing(values) for values in (settings.cost, settings.accuracy))
    wide, high = np.diff(cost, axis=0), (accuracy[1:] + accuracy[:-1]) / 2
    summed: Floats = (wide * high).sum(axis=0) + (1 - cost[-1]) * accuracy[-1]
    return summed


def _from_nothing(values: Floats) -> Floats:
    """The baseline in front makes room for nothing."""
    return np.concatenate([np.zeros_like(values[:1]), values[1:]])
