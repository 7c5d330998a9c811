"""The figure of forcing: accuracy, tokens, changed answers, and certainty after the natural end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from cgr.lab.ablate import figures
from cgr.lab.output import style

if TYPE_CHECKING:
    from cgr.lab.ablate.forcing import ForcedRow


def draw(rows: Sequence[ForcedRow]) -> Any:
    """Three panels by row; below them, if the forced run was probed, certainty around the natural end."""
    probed = [row for row in rows if row.steps]
    tall = 1.3 + 0.5 * len(rows)
    if not probed:
        figure, above = style.paper(1, 3, size=(9.6, tall), sharey=True)
        _compare(above, rows)
        return figure
    figure, axes = style.paper(2, 3, size=(9.6, tall + 2.8), height_ratios=(tall, 2.6))
    for other in axes[0][1:]:
        other.sharey(axes[0][0])
        other.tick_params(labelleft=False)
    _compare(axes[0], rows)
    below = axes[1][0].get_gridspec()
    for one in axes[1]:
        one.remove()
    _after_the_end(figure.add_subplot(below[1, :]), probed)
    return figure


def _compare(axes: Any, rows: Sequence[ForcedRow]) -> None:
    right, used, changed = axes
    figures.name_lines(right, [row.way for row in rows])
    figures.dots(right, [(row.score.accuracy, row.score.ci95_accuracy) for row in rows], style.BLUE, 100)
    right.xaxis.set_major_formatter(style.percent)
    right.set_xlabel("Accuracy")
    right.set_title("Forced thinking")
    for place, row in enumerate(rows):
        thought, probed = row.score.thinking_tokens, row.score.probe_tokens
        used.barh(place, thought, height=0.55, color=style.RULE if row.run else style.BASELINE)
        used.barh(place, probed, left=thought, height=0.55, color=style.PROBES)
        style.label(
            used, thought + probed, place, style.tokens(thought + probed), style.INK, fontsize=8, fontweight="normal"
        )
        if row.drift:
            changed.barh(place, -row.drift.lost, height=0.55, color=style.WRONG)
            changed.barh(place, row.drift.gained, height=0.55, color=style.RIGHT)
            for share, side in ((-row.drift.lost, "right"), (row.drift.gained, "left")):
                gap = -4 if side == "right" else 4
                text = f"{100 * abs(share):.1f}%"
                style.label(changed, share, place, text, style.INK, dx=gap, ha=side, fontsize=8, fontweight="normal")
    used.margins(x=0.18)
    style.token_axis(used.xaxis, "Tokens per trace (orange: probes)")
    widest = max((max(row.drift.lost, row.drift.gained) for row in rows if row.drift), default=0.01)
    changed.set_xlim(-1.6 * max(widest, 0.005), 1.6 * max(widest, 0.005))
    changed.axvline(0, color=style.BASELINE, linewidth=1)
    changed.xaxis.set_major_formatter(lambda value, _: style.percent(abs(value)))
    changed.locator_params(axis="x", nbins=5)
    changed.set_xlabel("Answers lost (left)\nand gained (right)")
    for one in axes:
        one.grid(visible=False, axis="y")


def _after_the_end(axes: Any, rows: Sequence[ForcedRow]) -> None:
    """Mean certainty and accuracy by distance from the natural end, where at least a tenth of the traces is left."""
    for row, colour in zip(rows, style.LINES, strict=False):
        most = max(step.count for step in row.steps)
        shown = [step for step in row.steps if step.count >= most / 10]
        x, name = [step.after for step in shown], f"{row.run}: " if len(rows) > 1 else ""
        sure, right = [step.certainty for step in shown], [step.accuracy for step in shown]
        axes.plot(x, sure, color=colour, marker="o", markersize=3, label=f"{name}certainty")
        axes.plot(x, right, color=colour, linestyle="--", linewidth=1.4, label=f"{name}share that is right")
    axes.axvline(0, color=style.INK, linewidth=1, linestyle=":")
    axes.set_ylim(min(0.8, axes.get_ylim()[0]), 1.02)
    style.token_axis(axes.xaxis, "Thinking tokens after the natural end (dotted), for traces with a natural end")
    axes.set_ylabel("Mean of probes")
    axes.legend(loc="lower right", ncols=max(len(rows), 2))
