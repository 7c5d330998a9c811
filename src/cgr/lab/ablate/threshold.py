"""Ablation of the threshold: a lower threshold stops earlier and gives more wrong answers.

The paper's first ablation: gross and net savings and the change in accuracy, over a grid that is finest near 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cgr.lab.ablate import figures
from cgr.lab.ablate.inputs import AblationInputs, stopping
from cgr.lab.ablate.rank import SELECTION_NOTE
from cgr.lab.ablate.result import SCORE_HEADS, Ablation, AblationResult, percent, points, score_cells
from cgr.lab.decide.arrays import Decisions
from cgr.lab.decide.columns import Columns
from cgr.lab.output import Head, Table, style
from cgr.lab.score.paired import Paired, Score, measure
from cgr.records import Record

# 1 - threshold: nine steps in each power of ten, from 0.5 to 0.00001.
DISTANCES = (0.5, 0.4, 0.3, 0.2, *(digit * 10.0**-power for power in (2, 3, 4, 5) for digit in range(10, 1, -1)), 1e-5)
GRID = tuple(round(1 - distance, 6) for distance in DISTANCES)
TICKS = (0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999)
CAPTION = "Share of thinking tokens saved, gross and net of probe tokens, and the change in accuracy, for each threshold."


@dataclass(frozen=True, slots=True)
class ThresholdScore(Record):
    """The score of one threshold."""

    threshold: float
    score: Score


def sweep(columns: Columns, thresholds: Sequence[float] = GRID) -> list[Decisions]:
    """The decisions of `cgr` at each threshold."""
    return [stopping(columns, threshold) for threshold in thresholds]


def ablate(inputs: AblationInputs) -> AblationResult:
    """The ablation on a grid of thresholds that includes the usual one."""
    columns, usual = inputs.columns(), inputs.threshold
    grid = tuple(sorted({*GRID, usual}))
    measured = measure(columns, sweep(columns, grid))
    rows = tuple(ThresholdScore(*pair) for pair in zip(grid, measured.scores, strict=True))
    cells = tuple((row.threshold, *score_cells(row.score)) for row in rows)
    table = Table("threshold", "Results by threshold", (Head("threshold", "θ", "g"), *SCORE_HEADS), cells)
    conclusion = conclude(rows, measured, usual)
    return AblationResult(conclusion, rows, table, lambda: draw(rows, usual), CAPTION, (SELECTION_NOTE,))


def conclude(rows: Sequence[ThresholdScore], measured: Paired, usual: float) -> str:
    """The best threshold at equal accuracy, and the result at the usual one."""
    here = next(row.score for row in rows if row.threshold == usual)
    at_usual = (
        f"At {usual:g} the net saving is {percent(here.net_share, here.ci95_net_share)} and "
        f"accuracy changes by {points(here.diff_points, here.ci95_diff_points)}"
    )
    place = measured.best_equal()
    if place is None:
        return f"At no threshold does the interval of the change in accuracy stay above −1 point. {at_usual}."
    best, saving = rows[place], rows[place].score
    if best.threshold == usual:
        return f"{at_usual}: the largest net saving of all thresholds whose interval stays above −1 point."
    return (
        "The largest net saving at equal accuracy (interval above −1 point) is "
        f"{percent(saving.net_share, saving.ci95_net_share)}, at {best.threshold:g}. {at_usual}."
    )


def draw(rows: Sequence[ThresholdScore], usual: float) -> Any:
    """Savings above and accuracy below, over thresholds."""
    distance = np.array([1 - row.threshold for row in rows])
    figure, axes = figures.savings_and_accuracy(distance, [row.score for row in rows], "by threshold")
    for one in axes:
        one.axvline(1 - usual, color=style.INK, linewidth=1, linestyle=":")
    axes[1].set_xlim(0.55, 0.9e-5)
    axes[1].set_xticks([1 - tick for tick in TICKS], [f"{tick:g}" for tick in TICKS])
    axes[1].set_xlabel(f"Threshold (dotted: {usual:g})")
    return figure


ABLATION = Ablation("threshold", "Threshold", ablate)
