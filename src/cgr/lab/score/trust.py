"""How well certainty tells right from wrong, with intervals over questions: answers to one question are drawn together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from cgr.lab.decide.columns import Bools, Columns, Floats, Ints
from cgr.lab.report.numbers import effective
from cgr.lab.score import bootstrap as intervals
from cgr.lab.score.bootstrap import Interval
from cgr.lab.score.calibration import BINS, auroc, calibration_error, reliability
from cgr.records import Record

Statistic = Callable[[Floats], Floats]


@dataclass(frozen=True, slots=True)
class Trust(Record):
    """Of the probes of a run. AUROC is None where all of them are right, or all wrong; ECE where there is none."""

    probes: int
    closed: float
    auroc: float | None
    ci95_auroc: Interval | None
    ece: float | None
    ci95_ece: Interval | None


def trust(columns: Columns, certainty: Floats | None = None) -> Trust:
    """Of all graded probes that were decoded to their end; `certainty` in place of the recorded one."""
    asked = columns.present & columns.graded[:, None] & ~columns.bound
    sure = effective(columns.certainty if certainty is None else certainty, columns.closed)[asked]
    right, question = columns.right[asked], np.broadcast_to(columns.question[:, None], asked.shape)[asked]
    if not asked.any():
        return Trust(0, 0.0, None, None, None, None)
    area, units = auroc(sure, right), len(columns.questions)
    return Trust(
        probes=int(asked.sum()),
        closed=float(columns.closed[asked].mean()),
        auroc=area,
        ci95_auroc=None if area is None else intervals.of_each(units, area_of(sure, right, question, units))[0],
        ece=calibration_error(reliability(sure, right)),
        ci95_ece=intervals.of_each(units, error_of(sure, right, question, units))[0],
    )


def area_of(sure: Floats, right: Bools, question: Ints, units: int) -> Statistic:
    """AUROC by how often each question counts: from the pairs that its right answers win over each question's wrong ones.
    Draws without a pair tell nothing, and count as a coin."""
    wins = _wins(sure, right, question, units)
    good, bad = (np.bincount(question[flags], minlength=units) for flags in (right, ~right))

    def area(counts: Floats) -> Floats:
        pairs, won = (counts @ good) * (counts @ bad), np.einsum("dq,dq->d", counts @ wins, counts)
        return np.where(pairs > 0, won / np.maximum(pairs, 1), 0.5)[:, None]

    return area


def _wins(sure: Floats, right: Bools, question: Ints, units: int) -> Floats:
    """(i, j): how often a right answer to i is surer than a wrong one to j, ties counting half."""
    wins = np.zeros((units, units))
    good = [sure[right & (question == one)] for one in range(units)]
    for other in range(units):
        bad = np.sort(sure[~right & (question == other)])
        if not len(bad):
            continue
        for one in range(units):
            below = np.searchsorted(bad, good[one], "left") + np.searchsorted(bad, good[one], "right")
            wins[one, other] = below.sum() / 2
    return wins


def error_of(sure: Floats, right: Bools, question: Ints, units: int) -> Statistic:
    """ECE by how often each question counts: from its sums in each bin, which are those of `selective.reliability`."""
    edges = np.linspace(0, 1, BINS + 1)
    place = question * BINS + np.clip(np.searchsorted(edges, sure, side="left") - 1, 0, BINS - 1)
    gaps, sizes = (
        np.bincount(place, weights=values, minlength=units * BINS).reshape(units, BINS) for values in (sure - right, None)
    )

    def error(counts: Floats) -> Floats:
        gap, size = np.abs(counts @ gaps).sum(axis=1), (counts @ sizes).sum(axis=1)
        return np.array(gap / np.maximum(size, 1), dtype=np.float64)[:, None]

    return error
