"""Ablation of the interval between probes: a short interval stops earlier and costs more probe tokens.

The paper uses one probe every 1,000 tokens and does not vary it. Here the probe set with the shortest interval is thinned
to multiples of that interval, so that all intervals are compared on the same traces. Probes left out cost nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cgr.errors import NotRecorded
from cgr.lab.ablate import figures
from cgr.lab.ablate.inputs import AblationInputs, stopping
from cgr.lab.ablate.result import SCORE_HEADS, Ablation, AblationResult, percent, points, score_cells
from cgr.lab.decide.columns import Columns
from cgr.lab.output import Head, Table, style
from cgr.lab.score.paired import Paired, Score, measure
from cgr.lab.store.config import differences, in_words
from cgr.lab.types import Interval
from cgr.records import Record

MULTIPLES = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32)
LABELLED = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)  # multiples that have a label on the axis
CAPTION = "Share of thinking tokens saved, gross and net of probe tokens, and the change in accuracy, for each interval."

BEHIND = Head("ci95_behind", "Best net minus this", ".1f", 100)


@dataclass(frozen=True, slots=True)
class IntervalRow(Record):
    """The score of one interval. `probes`: mean per trace; `ci95_behind`: the best net saving minus this one."""

    interval: int
    probes: float
    score: Score
    ci95_behind: Interval


def ablate(inputs: AblationInputs) -> AblationResult:
    """The ablation on the probe set with the shortest interval."""
    name = finest(inputs)
    columns = inputs.columns(name)
    spacing = multiples(columns)
    decisions = [stopping(columns, inputs.threshold, one) for one in spacing]
    measured = measure(columns, decisions)
    behind = measured.behind(measured.best_net())
    probes = [float(np.mean(decided.at // one)) for one, decided in zip(spacing, decisions, strict=True)]
    rows = tuple(map(IntervalRow, spacing, probes, measured.scores, behind))
    heads = (Head("interval", "Δ", ",d"), Head("probes", "Probes", ".1f"), *SCORE_HEADS, BEHIND)
    table = Table(
        "interval",
        f"Results by interval, at a threshold of {inputs.threshold:g}",
        heads,
        tuple((row.interval, row.probes, *score_cells(row.score), row.ci95_behind) for row in rows),
    )
    best = measured.best_net()
    return AblationResult(conclude(rows, measured), rows, table, lambda: draw(rows, best, inputs.threshold), CAPTION)


def finest(inputs: AblationInputs) -> str:
    """The name of the probe set with the shortest interval, among those with the same prompt as the main one."""
    alike = [
        name
        for name, one in inputs.on_grid().items()
        if not [found for found in differences(one, inputs.main_set) if not found.startswith("interval ")]
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


def conclude(rows: Sequence[IntervalRow], measured: Paired) -> str:
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


def draw(rows: Sequence[IntervalRow], best: int, threshold: float) -> Any:
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


ABLATION = Ablation("interval", "Interval between probes", ablate)
