"""The interval between probes: asking often stops sooner and costs more.

The paper argues for one probe in 1,000 tokens without varying it. Here one finely recorded set is thinned out to multiples
of its interval, so that all are held against the same traces; what a thinner grid would not have asked, it does not pay.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cgr.errors import NotRecorded
from cgr.lab.ablate import figures as drawing
from cgr.lab.ablate.inputs import AblationInputs, stopping
from cgr.lab.ablate.result import Ablated, Ablation, listed, percent, percents, points, span
from cgr.lab.decide.columns import Columns
from cgr.lab.output import style
from cgr.lab.output.table import Head, Table
from cgr.lab.score.measures import SCORE, Measured, Score, cells, measure
from cgr.lab.store.config import differences
from cgr.lab.types import Interval
from cgr.records import Record

MULTIPLES = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32)
CAPTION = "Saved and net of the probes' tokens, and the change in accuracy, if probes came so many tokens apart."


@dataclass(frozen=True, slots=True)
class IntervalRow(Record):
    """`probes` is a mean over traces; `ci95_behind` the interval of the best net saving less this one's."""

    interval: int
    probes: float
    score: Score
    ci95_behind: Interval


def ablate(evidence: AblationInputs) -> Ablated:
    name = finest(evidence)
    columns = evidence.columns(name)
    spacing = multiples(columns)
    ways = [stopping(columns, evidence.threshold, one) for one in spacing]
    measured = measure(columns, ways)
    behind = measured.behind(measured.best_net())
    probes = [float(np.mean(decided.at // one)) for one, decided in zip(spacing, ways, strict=True)]
    rows = tuple(map(IntervalRow, spacing, probes, measured.scores, behind))
    heads = (Head("interval", "Δ", ",d"), Head("probes", "Probes", ".1f"), *SCORE, _BEHIND)
    table = Table(
        "interval",
        f"Over intervals, at a threshold of {evidence.threshold:g}",
        heads,
        tuple((row.interval, row.probes, *cells(row.score), row.ci95_behind) for row in rows),
    )
    said = conclude(rows, measured)
    return Ablated(said, rows, table, lambda: draw(rows, measured.best_net(), evidence.threshold), CAPTION)


_BEHIND = Head("ci95_behind", "Best net less this", ".1f", 100)


def finest(evidence: AblationInputs) -> str:
    """The set with the shortest interval among those that ask as the main one does."""
    alike = [
        name
        for name, one in evidence.on_grid().items()
        if not [said for said in differences(one, evidence.main_set) if not said.startswith("interval ")]
    ]
    return min(alike, key=lambda name: evidence.sets[name].interval)


def multiples(columns: Columns) -> tuple[int, ...]:
    """Those of which at least two fit into the budget."""
    step = columns.info.interval
    found = tuple(step * factor for factor in MULTIPLES if 2 * step * factor < columns.limit)
    if len(found) < 2:
        raise NotRecorded(
            f"Probes every {step} tokens leave no longer interval to try under a budget of {columns.limit}.",
            f"cgr probe RUN --interval {max(1, columns.limit // 32)}",
        )
    return found


def conclude(rows: Sequence[IntervalRow], measured: Measured) -> str:
    place = measured.best_net()
    best, tied = rows[place], [f"{rows[one].interval:,}" for one in measured.tied_with(place)]
    first = (
        f"Best net saving at an interval of {best.interval:,}: {percent(best.score.net_share)} "
        f"{percents(best.score.ci95_net_share)}, with a change in accuracy of {points(best.score.diff_points)} "
        f"{span(best.score.ci95_diff_points)}"
    )
    if not tied:
        return f"{first}; every other interval saves less."
    return f"{first}; {listed(tied)} cannot be told from it."


def draw(rows: Sequence[IntervalRow], best: int, threshold: float) -> Any:
    figure, (above, below) = style.paper(2, 1, size=(7.2, 5.6), sharex=True, height_ratios=(3, 2))
    x, scores = np.array([float(row.interval) for row in rows]), [row.score for row in rows]
    drawing.savings(above, x, scores)
    drawing.accuracy(below, x, scores)
    net, text = scores[best].net_share, f"best: {rows[best].interval:,}"
    above.plot(x[best], net, "o", color=style.RULE, markersize=10, markerfacecolor="none", zorder=5)
    style.label(above, x[best], net, text, style.RULE, dx=0, dy=-16, ha="center")
    below.set_xscale("log")
    below.minorticks_off()
    ticks = [row.interval for row in rows if _is_labelled(row.interval, rows[0].interval)]
    below.set_xticks(ticks, [f"{one:,}" for one in ticks])
    below.set_xlabel("Thinking tokens between probes")
    above.set_title(f"What probing often costs and brings, at a threshold of {threshold:g}")
    return figure


def _is_labelled(interval: int, step: int) -> bool:
    """Doublings, and the halves between them."""
    factor = interval // step
    return factor in (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)


ABLATION = Ablation("interval", "Interval between probes", ablate)
