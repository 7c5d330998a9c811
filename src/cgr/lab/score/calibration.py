"""Does certainty know? Risk against coverage, AURC and E-AURC, calibration error, and AUROC.

The conventions, since public code differs on each: answers of equal certainty are taken together, no order of a tie being
better than another; the area is by trapezoids over coverage from 0 to 1, after each answer, with the first one's risk at
coverage 0 and the average of all orders inside a tie; E-AURC is the area above that of the best order, never below zero;
ECE has bins of equal width, closed above. An answer that did not close is given certainty 0 by whoever calls.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cgr.lab.decide.columns import Bools, Floats, Ints
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
        return self.taken.astype(np.float64) / float(self.taken[-1])

    @property
    def risk(self) -> Floats:
        return self.wrong.astype(np.float64) / self.taken

    def smooth(self) -> tuple[Floats, Floats]:
        """Coverage and risk after each single answer: inside a tie, what any order of it gives on average."""
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

    def coverage_at(self, risk: float) -> float | None:
        """The largest coverage whose risk is no more than this, if there is one."""
        allowed = self.coverage[self.risk <= risk + 1e-12]
        return float(allowed.max()) if allowed.size else None


@dataclass(frozen=True, slots=True)
class Bin(Record):
    """Answers whose certainty is above `low` and at most `high`: how sure they were, how often right."""

    low: float
    high: float
    count: int
    certainty: float
    accuracy: float


@dataclass(frozen=True, slots=True)
class Selective(Record):
    """How well certainty tells right from wrong among so many answers. None: there is nothing to tell apart."""

    count: int
    accuracy: float | None
    aurc: float | None
    e_aurc: float | None
    ece: float | None
    auroc: float | None
    risk_at_coverage: tuple[tuple[float, float], ...] = ()
    reliability: tuple[Bin, ...] = ()


def selective(certainty: Floats, right: Bools) -> Selective:
    if not len(certainty):
        return Selective(0, None, None, None, None, None)
    curve = risk_coverage(certainty, right)
    bins = reliability(certainty, right)
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
    order = np.argsort(-certainty, kind="stable")
    falling, wrong = certainty[order], ~right[order]
    last = np.append(falling[1:] != falling[:-1], True)
    return Curve(np.flatnonzero(last) + 1, np.cumsum(wrong)[last])


def best(right: Bools) -> Curve:
    """The curve of an oracle's order: every right answer before every wrong one, each a step of its own."""
    return risk_coverage(-np.argsort(np.argsort(~right, kind="stable")).astype(np.float64), right)


def reliability(certainty: Floats, right: Bools, bins: int = BINS) -> tuple[Bin, ...]:
    """The bins that hold anything."""
    edges = np.linspace(0, 1, bins + 1)
    index = np.clip(np.searchsorted(edges, certainty, side="left") - 1, 0, bins - 1)
    found = []
    for one in np.unique(index):
        here = index == one
        mean, accuracy = float(certainty[here].mean()), float(right[here].mean())
        found.append(Bin(float(edges[one]), float(edges[one + 1]), int(here.sum()), mean, accuracy))
    return tuple(found)


def calibration_error(bins: tuple[Bin, ...]) -> float:
    """ECE: the mean distance between how sure and how often right, each bin by its weight."""
    total = sum(one.count for one in bins)
    return sum(one.count * abs(one.certainty - one.accuracy) for one in bins) / total


def auroc(certainty: Floats, right: Bools) -> float | None:
    """The chance that a right answer is more certain than a wrong one, ties counting half."""
    good, bad = int(right.sum()), int((~right).sum())
    if not good or not bad:
        return None
    _, rank, counts = np.unique(certainty, return_inverse=True, return_counts=True)
    middle = np.cumsum(counts) - (counts - 1) / 2
    return float((middle[rank][right].sum() - good * (good + 1) / 2) / (good * bad))
