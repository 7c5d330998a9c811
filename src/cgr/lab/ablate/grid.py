"""Ablations over a grid of values: of the threshold, and of the interval between probes.

A lower threshold stops earlier and gives more wrong answers. The paper's first ablation: gross and net savings and the
change in accuracy, over a grid that is finest near 1.

A short interval stops earlier and costs more probe tokens. The paper uses one probe every 1,000 tokens and does not vary
it. Here the probe set with the shortest interval is thinned to multiples of that interval, so that all intervals are
compared on the same traces. Probes left out cost nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cgr.errors import NotRecorded
from cgr.lab.ablate import figures
from cgr.lab.ablate.inputs import AblationInputs, stopping
from cgr.lab.ablate.rank import SELECTION_NOTE, accuracy_kept
from cgr.lab.ablate.result import SCORE_HEADS, AblationResult, percent, points
from cgr.lab.decide.columns import Columns
from cgr.lab.output import Head, Table, style
from cgr.lab.score.paired import Paired, Score, measure
from cgr.lab.store.config import differences, in_words
from cgr.lab.types import Interval
from cgr.records import Record

# 1 - threshold: nine steps in each power of ten, from 0.5 to 0.00001.
DISTANCES = (0.5, 0.4, 0.3, 0.2, *(digit * 10.0**-power for power in (2, 3, 4, 5) for digit in range(10, 1, -1)), 1e-5)
THRESHOLDS = tuple(round(1 - distance, 6) for distance in DISTANCES)
TICKS = (0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999)
MULTIPLES = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32)
LABELLED = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)  # multiples that have a label on the axis
CAPTION = "Share of thinking tokens saved, gross and net of probe tokens, and the change in accuracy, for each"


@dataclass(frozen=True, slots=True)
class ThresholdScore(Record):
    """The score of one threshold."""

    threshold: float
    score: Score


@dataclass(frozen=True, slots=True)
class IntervalRow(Record):
    """The score of one interval. `probes`: mean per trace; `ci95_behind`: the best net saving minus this one."""

    interval: int
    probes: float
    score: Score
    ci95_behind: Interval


def ablate_threshold(inputs: AblationInputs) -> AblationResult:
    """The ablation on a grid of thresholds that includes the usual one."""
    columns, usual = inputs.columns(), inputs.threshold
    grid = sorted({*THRESHOLDS, usual})
    measured = measure(columns, [stopping(columns, threshold) for threshold in grid])
    rows = tuple(map(ThresholdScore, grid, measured.scores))
    heads = (Head("threshold", "θ", "g"), *SCORE_HEADS)
    table = Table.of_records("threshold", "Results by threshold", heads, [(row, row.score) for row in rows])
    conclusion, caption = conclude_threshold(rows, measured, usual), f"{CAPTION} threshold."
    return AblationResult(conclusion, rows, table, lambda: draw_threshold(rows, usual), caption, (SELECTION_NOTE,))


def conclude_threshold(rows: Sequence[ThresholdScore], measured: Paired, usual: float) -> str:
    """The best threshold at equal accuracy, and the result at the usual one."""
    here = next(row.score for row in rows if row.threshold == usual)
    at_usual = (
        f"At {usual:g} the net saving is {percent(here.net_share, here.ci95_net_share)} and "
        f"accuracy changes by {points(here.diff_points, here.ci95_diff_points)}"
    )
    place = measured.best_equal()
    if place is None:
        return f"More than 1 point of accuracy is lost at every threshold. {at_usual}."
    best, saving = rows[place], rows[place].score
    kept = accuracy_kept(saving)
    if best.threshold == usual:
        return f"{kept} the net saving is largest at the usual threshold. {at_usual}."
    most = percent(saving.net_share, saving.ci95_net_share)
    return f"{kept} the largest net saving is {most}, at {best.threshold:g}. {at_usual}."


def draw_threshold(rows: Sequence[ThresholdScore], usual: float) -> Any:
    """Savings above and accuracy below, over thresholds."""
    distance = np.array([1 - row.threshold for row in rows])
    figure, axes = figures.savings_and_accuracy(distance, [row.score for row in rows], "by threshold")
    for one in axes:
        one.axvline(1 - usual, color=style.INK, linewidth=1, linestyle=":")
    axes[1].set_xticks([1 - tick for tick in TICKS], [f"{tick:g}" for tick in TICKS])
    axes[1].set(xlim=(0.55, 0.9e-5), xlabel=f"Threshold (dotted: {usual:g})")
    return figure


def ablate_interval(inputs: AblationInputs) -> AblationResult:
    """The ablation on the probe set with the shortest interval."""
    if not inputs.on_grid():
        message = f"The probes in {inputs.run.folder} are at irregular positions, which have no interval."
        raise NotRecorded(message, inputs.command())
    columns, usual = inputs.columns(finest(inputs)), inputs.threshold
    grid = multiples(columns)
    decisions = [stopping(columns, usual, one) for one in grid]
    measured = measure(columns, decisions)
    best = measured.best_net()
    probes = [float(np.mean(decided.at // one)) for one, decided in zip(grid, decisions, strict=True)]
    rows = tuple(map(IntervalRow, grid, probes, measured.scores, measured.behind(best)))
    behind = Head("ci95_behind", "Best net minus this", ".1f", 100)
    heads = (Head("interval", "Δ", ",d"), Head("probes", "Probes", ".1f"), *SCORE_HEADS, behind)
    title = f"Results by interval, at a threshold of {usual:g}"
    table = Table.of_records("interval", title, heads, [(row, row.score) for row in rows])
    conclusion, caption = conclude_interval(rows, measured), f"{CAPTION} interval."
    return AblationResult(conclusion, rows, table, lambda: draw_interval(rows, best, usual), caption)


def finest(inputs: AblationInputs) -> str:
    """The name of the probe set with the shortest interval, among those with the same prompt as the main one."""
    alike = [
        name
        for name, one in inputs.on_grid().items()
        if not [found for found in differences(one, inputs.sets[inputs.main]) if not found.startswith("interval ")]
    ]
    return min(alike, key=lambda name: inputs.sets[name].interval)


def multiples(columns: Columns) -> tuple[int, ...]:
    """The multiples of the interval of which at least two fit into the budget."""
    step = columns.info.interval
    found = tuple(step * factor for factor in MULTIPLES if 2 * step * factor < columns.limit)
    if len(found) < 2:
        raise NotRecorded(
            f"Probes every {step} tokens under a budget of {columns.limit} leave no longer interval to try.",
            f"cgr probe RUN --interval {max(1, columns.limit // 32)}",
        )
    return found


def conclude_interval(rows: Sequence[IntervalRow], measured: Paired) -> str:
    """The best interval, and those that do not differ from it significantly."""
    place = measured.best_net()
    best, score = rows[place], rows[place].score
    tied = [f"{rows[one].interval:,}" for one in measured.tied_with(place)]
    text = (
        f"Best net saving at an interval of {best.interval:,}: {percent(score.net_share, score.ci95_net_share)}, "
        f"with a change in accuracy of {points(score.diff_points, score.ci95_diff_points)}"
    )
    others = f"the difference to {in_words(tied)} is not significant" if tied else "every other interval saves less"
    return f"{text}; {others}."


def draw_interval(rows: Sequence[IntervalRow], best: int, threshold: float) -> Any:
    """Savings above and accuracy below, over intervals."""
    x, scores = np.array([float(row.interval) for row in rows]), [row.score for row in rows]
    figure, (above, below) = figures.savings_and_accuracy(x, scores, f"by interval, at a threshold of {threshold:g}")
    net, text = scores[best].net_share, f"best: {rows[best].interval:,}"
    above.plot(x[best], net, "o", color=style.RULE, markersize=10, markerfacecolor="none", zorder=5)
    style.label(above, x[best], net, text, style.RULE, dx=0, dy=-16, ha="center")
    ticks = [row.interval for row in rows if row.interval // rows[0].interval in LABELLED]
    below.set_xticks(ticks, [f"{one:,}" for one in ticks])
    below.set_xlabel("Thinking tokens between probes")
    return figure
