"""How well certainty separates right from wrong answers: risk against coverage, AURC, E-AURC, ECE and AUROC.

Conventions (public code differs on each): answers of equal certainty are one step, since no order of a tie is better than
another. The area is by trapezoids over coverage from 0 to 1, after each answer; the risk at coverage 0 is that of the first
answer, and inside a tie it is the mean over all orders. E-AURC is the area above that of the best order. ECE has bins of
equal width that include their upper end. An answer that did not close has certainty 0: see `effective`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from cgr.lab.decide.columns import Columns
from cgr.lab.score import bootstrap
from cgr.lab.types import Bools, Floats, Interval, Ints
from cgr.records import Record

BINS = 10
COVERAGES = (0.5, 0.8, 0.9, 1.0)


@dataclass(frozen=True, eq=False)
class Curve:
    """Risk among the most certain answers: how many are `taken` at each certainty that occurs, and how many are wrong."""

    taken: Ints
    wrong: Ints

    @property
    def coverage(self) -> Floats:
        """The share of answers taken."""
        return self.taken.astype(np.float64) / float(self.taken[-1])

    @property
    def risk(self) -> Floats:
        """The share of wrong answers among them."""
        return self.wrong.astype(np.float64) / self.taken

    def smooth(self) -> tuple[Floats, Floats]:
        """Coverage and risk after each single answer; inside a tie, the mean over all orders."""
        each = np.arange(1, self.taken[-1] + 1)
        wrong = np.interp(each, np.append(0, self.taken), np.append(0, self.wrong))
        return each / self.taken[-1], wrong / each

    @property
    def area(self) -> float:
        """AURC."""
        coverage, risk = self.smooth()
        return float(np.trapezoid(np.append(risk[0], risk), np.append(0.0, coverage)))

    def risk_at(self, coverage: float) -> float:
        """The risk of the smallest set of most certain answers that covers this much."""
        return float(self.risk[np.argmax(self.coverage >= coverage - 1e-12)])


@dataclass(frozen=True, slots=True)
class Bin(Record):
    """Answers with a certainty above `low` and at most `high`: their mean certainty and their accuracy."""

    low: float
    high: float
    count: int
    certainty: float
    accuracy: float


@dataclass(frozen=True, slots=True)
class Selective(Record):
    """How well certainty separates right from wrong among `count` answers. None: there is nothing to separate."""

    count: int
    accuracy: float | None
    aurc: float | None
    e_aurc: float | None
    ece: float | None
    auroc: float | None
    risk_at_coverage: tuple[tuple[float, float], ...] = ()
    reliability: tuple[Bin, ...] = ()


def effective(certainty: Floats, closed: Bools) -> Floats:
    """The certainty of each answer, 0 for one that did not close."""
    return np.where(closed, certainty, 0.0)


def selective(certainty: Floats, right: Bools) -> Selective:
    """All measures for these answers."""
    if not len(certainty):
        return Selective(0, None, None, None, None, None)
    curve, bins = risk_coverage(certainty, right), reliability(certainty, right)
    return Selective(
        count=len(certainty),
        accuracy=float(right.mean()),
        aurc=curve.area,
        e_aurc=curve.area - best(right).area,
        ece=calibration_error(bins),
        auroc=auroc(certainty, right),
        risk_at_coverage=tuple((coverage, curve.risk_at(coverage)) for coverage in COVERAGES),
        reliability=bins,
    )


def risk_coverage(certainty: Floats, right: Bools) -> Curve:
    """The risk-coverage curve of these answers, the most certain first."""
    order = np.argsort(-certainty)  # of a tie, only the last place counts
    falling, wrong = certainty[order], ~right[order]
    last = np.append(falling[1:] != falling[:-1], True)
    return Curve(np.flatnonzero(last) + 1, np.cumsum(wrong)[last])


def best(right: Bools) -> Curve:
    """The curve of the best order: all right answers before all wrong ones, each one step."""
    return Curve(np.arange(1, len(right) + 1), np.cumsum(np.sort(~right)))


def reliability(certainty: Floats, right: Bools, bins: int = BINS) -> tuple[Bin, ...]:
    """The bins that are not empty."""
    edges, index, found = np.linspace(0, 1, bins + 1), _bin(certainty, bins), []
    for one in np.unique(index):
        here = index == one
        mean, accuracy = float(certainty[here].mean()), float(right[here].mean())
        found.append(Bin(float(edges[one]), float(edges[one + 1]), int(here.sum()), mean, accuracy))
    return tuple(found)


def calibration_error(bins: tuple[Bin, ...]) -> float:
    """ECE: the mean distance between certainty and accuracy, weighted by the size of the bins."""
    total = sum(one.count for one in bins)
    return sum(one.count * abs(one.certainty - one.accuracy) for one in bins) / total


def auroc(certainty: Floats, right: Bools) -> float | None:
    """The chance that a right answer is more certain than a wrong one; ties count half. None if either kind is missing."""
    good, bad = int(right.sum()), int((~right).sum())
    if not good or not bad:
        return None
    _, rank, counts = np.unique(certainty, return_inverse=True, return_counts=True)
    middle = np.cumsum(counts) - (counts - 1) / 2
    return float((middle[rank][right].sum() - good * (good + 1) / 2) / (good * bad))


def _bin(certainty: Floats, bins: int) -> Ints:
    """The bin of each certainty."""
    edges = np.linspace(0, 1, bins + 1)
    return np.clip(np.searchsorted(edges, certainty, side="left") - 1, 0, bins - 1)


Statistic = Callable[[Floats], Floats]


@dataclass(frozen=True, slots=True)
class ProbeCalibration(Record):
    """AUROC and ECE of the probes of a run, with intervals over questions. AUROC is None if all probes are right or all
    wrong. `closed`: the share of probes whose answer closed."""

    probes: int
    closed: float
    auroc: float | None
    ci95_auroc: Interval | None
    ece: float | None
    ci95_ece: Interval | None


def probe_calibration(columns: Columns, certainty: Floats | None = None) -> ProbeCalibration:
    """The measures over all graded probes that were decoded completely. `certainty`: used instead of the recorded one."""
    asked = columns.present & columns.graded[:, None] & ~columns.bound
    sure = effective(columns.certainty if certainty is None else certainty, columns.closed)[asked]
    right, question = columns.right[asked], np.broadcast_to(columns.question[:, None], asked.shape)[asked]
    if not asked.any():
        return ProbeCalibration(0, 0.0, None, None, None, None)
    area, units = auroc(sure, right), len(columns.questions)
    return ProbeCalibration(
        probes=int(asked.sum()),
        closed=float(columns.closed[asked].mean()),
        auroc=area,
        ci95_auroc=None if area is None else bootstrap.of_each(units, auroc_of(sure, right, question, units))[0],
        ece=calibration_error(reliability(sure, right)),
        ci95_ece=bootstrap.of_each(units, error_of(sure, right, question, units))[0],
    )


def auroc_of(sure: Floats, right: Bools, question: Ints, units: int) -> Statistic:
    """AUROC from the counts of each question, by the pairs that right answers win. A draw without pairs counts as 0.5."""
    wins = _wins(sure, right, question, units)
    good, bad = (np.bincount(question[flags], minlength=units) for flags in (right, ~right))

    def area(counts: Floats) -> Floats:
        pairs, won = (counts @ good) * (counts @ bad), np.einsum("dq,dq->d", counts @ wins, counts)
        return np.where(pairs > 0, won / np.maximum(pairs, 1), 0.5)[:, None]

    return area


def _wins(sure: Floats, right: Bools, question: Ints, units: int) -> Floats:
    """(i, j): how often a right answer to question i is more certain than a wrong one to j; ties count half."""
    wins, good = np.zeros((units, units)), sure[right]
    for other in range(units):
        bad = np.sort(sure[~right & (question == other)])
        below = np.searchsorted(bad, good, "left") + np.searchsorted(bad, good, "right")
        wins[:, other] = np.bincount(question[right], weights=below / 2, minlength=units)
    return wins


def error_of(sure: Floats, right: Bools, question: Ints, units: int) -> Statistic:
    """ECE from the counts of each question, by its sums in the bins of `reliability`."""
    place = question * BINS + _bin(sure, BINS)
    gaps, sizes = (
        np.bincount(place, weights=values, minlength=units * BINS).reshape(units, BINS) for values in (sure - right, None)
    )

    def error(counts: Floats) -> Floats:
        gap, size = np.abs(counts @ gaps).sum(axis=1), (counts @ sizes).sum(axis=1)
        mean: Floats = gap / np.maximum(size, 1)
        return mean[:, None]

    return error
