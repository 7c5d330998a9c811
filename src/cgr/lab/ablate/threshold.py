"""The threshold: the lower it is, the earlier the thinking stops, and the more answers are given too soon.

The paper's first ablation: savings, gross and net, and the change in accuracy, over a grid that is finest near 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cgr.lab.ablate import figures as drawing
from cgr.lab.ablate.inputs import AblationInputs, stopping
from cgr.lab.ablate.rank import CHOSEN
from cgr.lab.ablate.result import Ablated, Ablation, percent, percents, points, span
from cgr.lab.decide.arrays import Decisions
from cgr.lab.decide.columns import Columns
from cgr.lab.output import style
from cgr.lab.output.table import Head, Table
from cgr.lab.score.measures import MARGIN, SCORE, Measured, Score, cells, measure
from cgr.records import Record

# By the doubt that is left: nine steps in each power of ten, from a half to a hundred-thousandth.
DOUBTS = (0.5, 0.4, 0.3, 0.2, *(digit * 10.0**-power for power in (2, 3, 4, 5) for digit in range(10, 1, -1)), 1e-5)
GRID = tuple(round(1 - doubt, 6) for doubt in DOUBTS)
TICKS = (0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999)
CAPTION = "Share of thinking saved, gross and net of the probes' tokens, and the change in accuracy, over thresholds."


@dataclass(frozen=True, slots=True)
class ThresholdRow(Record):
    threshold: float
    score: Score


def sweep(columns: Columns, thresholds: Sequence[float] = GRID) -> list[Decisions]:
    return [stopping(columns, threshold) for threshold in thresholds]


def ablate(evidence: AblationInputs) -> Ablated:
    columns = evidence.columns()
    grid = tuple(sorted({*GRID, evidence.threshold}))
    measured = measure(columns, sweep(columns, grid))
    rows = tuple(ThresholdRow(*pair) for pair in zip(grid, measured.scores, strict=True))
    heads = (Head("threshold", "θ", "g"), *SCORE)
    table = Table("threshold", "Over thresholds", heads, tuple((row.threshold, *cells(row.score)) for row in rows))
    said = conclude(rows, measured, evidence.threshold)
    return Ablated(said, rows, table, lambda: draw(rows, evidence.threshold), CAPTION, (CHOSEN,))


def conclude(rows: Sequence[ThresholdRow], measured: Measured, usual: float) -> str:
    here = next(row for row in rows if row.threshold == usual)
    said = (
        f"At {usual:g} the net saving is {percent(here.score.net_share)} {percents(here.score.ci95_net_share)} and "
        f"accuracy changes by {points(here.score.diff_points)} {span(here.score.ci95_diff_points)}"
    )
    place = measured.best_equal()
    if place is None:
        return f"No threshold keeps the interval of the accuracy above {MARGIN:g} points. {said}.".replace("-", "−")
    best = rows[place]
    if best.threshold == usual:
        return f"{said}: the largest net saving of all thresholds whose interval stays above −1 point."
    return (
        f"The largest net saving at equal accuracy (interval above −1 point) is {percent(best.score.net_share)} "
        f"{percents(best.score.ci95_net_share)}, at {best.threshold:g}. {said}."
    )


def draw(rows: Sequence[ThresholdRow], usual: float) -> Any:
    figure, (above, below) = style.paper(2, 1, size=(7.2, 5.6), sharex=True, height_ratios=(3, 2))
    doubt = np.array([1 - row.threshold for row in rows])
    scores = [row.score for row in rows]
    drawing.savings(above, doubt, scores)
    drawing.accuracy(below, doubt, scores)
    for axes in (above, below):
        axes.axvline(1 - usual, color=style.INK, linewidth=1, linestyle=":")
    below.set_xscale("log")
    below.set_xlim(0.55, 0.9e-5)
    below.set_xticks([1 - tick for tick in TICKS], [f"{tick:g}" for tick in TICKS])
    below.minorticks_off()
    below.set_xlabel(f"Threshold (dotted: {usual:g})")
    above.set_title("The threshold: what it saves and what it loses")
    return figure


ABLATION = Ablation("threshold", "Threshold", ablate)
