"""Figures of ablations: parts that they share, and the figure of forcing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from cgr.lab.output import style
from cgr.lab.score.bounds import MARGIN
from cgr.lab.score.paired import Score
from cgr.lab.types import Floats, Interval
from cgr.records import visible

if TYPE_CHECKING:
    from cgr.lab.ablate.forcing import ForcedRow


def savings_and_accuracy(x: Floats, scores: Sequence[Score], varied: str) -> tuple[Any, Any]:
    """A figure with savings above and the change in accuracy below, over `x` on a logarithmic axis; (figure, axes)."""
    figure, axes = style.paper(2, 1, size=(7.2, 5.6), sharex=True, height_ratios=(3, 2))
    savings(axes[0], x, scores)
    accuracy(axes[1], x, scores)
    axes[0].set_title(f"Savings and change in accuracy {varied}")
    axes[1].set_xscale("log")
    axes[1].minorticks_off()
    return figure, axes


def savings(axes: Any, x: Floats, scores: Sequence[Score]) -> None:
    """Draw gross and net savings over `x`, the probe tokens between them, and the interval of the net."""
    gross, net = (np.array([getattr(one, name) for one in scores]) for name in ("gross_share", "net_share"))
    low, high = np.array([one.ci95_net_share for one in scores]).T
    axes.plot(x, gross, color=style.PROBES, linewidth=1.3, marker="o", markersize=2.5, label="saved")
    axes.plot(x, net, color=style.RULE, marker="o", markersize=3.5, label="saved, net")
    axes.fill_between(x, net, gross, color=style.PROBES, alpha=0.25, linewidth=0, label="probe tokens")
    for place, ends in enumerate((low, high)):
        name = "" if place else "95% interval of the net"
        axes.plot(x, ends, color=style.RULE, linewidth=1, linestyle=(0, (4, 2)), alpha=0.8, label=name)
    axes.axhline(0, color=style.BASELINE, linewidth=1)
    axes.yaxis.set_major_formatter(style.percent)
    axes.set_ylabel("Share of thinking tokens")
    axes.figure.legend(loc="outside lower center", ncols=4)


def accuracy(axes: Any, x: Floats, scores: Sequence[Score]) -> None:
    """Draw the change in accuracy over `x`, its interval, and the margin above which it counts as equal."""
    points = np.array([one.diff_points for one in scores])
    low, high = np.array([one.ci95_diff_points for one in scores]).T
    axes.axhline(0, color=style.BASELINE, linewidth=1)
    axes.axhline(MARGIN, color=style.BASELINE, linewidth=1, linestyle="--")
    axes.fill_between(x, low, high, color=style.BLUE, alpha=0.18, linewidth=0)
    axes.plot(x, points, color=style.BLUE, marker="o", markersize=3.5)
    axes.set_ylabel("Accuracy change (points)")
    floor = min(float(low.min()), MARGIN * 2)
    axes.set_ylim(max(floor, -12) * 1.1, max(float(high.max()), 1) * 1.15)
    text, options = "margin of equal accuracy", {"ha": "right", "va": "top", "fontsize": 8}
    style.beside_axis(axes, 0.995, MARGIN, text, (0, -4), color=style.BASELINE, **options)


def dots(axes: Any, values: Sequence[tuple[float, Interval | None] | None], colour: Any, scale: float = 1) -> None:
    """Draw a value and its interval on each line; None is written as text. A `scale` of 100 labels in percent."""
    for place, one in enumerate(values):
        if one is None:
            style.beside_axis(axes, 0.5, place, "at no threshold", (0, 0), ha="center", va="center", fontsize=8.5)
            continue
        value, ends = one
        if ends:
            axes.plot(ends, [place, place], color=colour, linewidth=2.4, alpha=0.4, solid_capstyle="butt")
        axes.plot(value, place, "o", color=colour, markersize=6)
        text = (f"{scale * value:.1f}%" if scale == 100 else f"{value:.3f}").replace("-", "−")
        style.label(axes, value, place, text, colour, dx=0, dy=7, ha="center", va="bottom", fontsize=8)
    axes.margins(x=0.12)


def panels_by_name(names: Sequence[str], panels: int, title: str) -> tuple[Any, Any]:
    """A figure with panels side by side that share one line for each name, the first on top."""
    figure, axes = style.paper(1, panels, size=(9.6, 1.6 + 0.5 * len(names)), sharey=True)
    name_lines(axes[0], names)
    for one in axes:
        one.grid(visible=False, axis="y")
        one.locator_params(axis="x", nbins=5)
    axes[0].set_title(title)
    return figure, axes


def name_lines(axes: Any, names: Sequence[str]) -> None:
    """Label one line for each name, the first on top."""
    axes.set_yticks(range(len(names)), [_shortened(name) for name in names])
    axes.set_ylim(len(names) - 0.5, -0.75)


def _shortened(name: str) -> str:
    """Shorten each line to fit beside the panels."""
    lines = (
        line if len(line) <= 38 else f"{line[:20]}…{line[-16:]}" for line in visible(name).replace(" (", "\n(").split("\n")
    )
    return "\n".join(lines)


def forcing(rows: Sequence[ForcedRow]) -> Any:
    """Three panels by row; below them, if the forced run was probed, certainty around the natural end."""
    probed = [row for row in rows if row.steps]
    tall = 1.3 + 0.5 * len(rows)
    if not probed:
        figure, above = style.paper(1, 3, size=(9.6, tall), sharey=True)
        _compare_forced(above, rows)
        return figure
    figure, axes = style.paper(2, 3, size=(9.6, tall + 2.8), height_ratios=(tall, 2.6))
    for other in axes[0][1:]:
        other.sharey(axes[0][0])
        other.tick_params(labelleft=False)
    _compare_forced(axes[0], rows)
    below = axes[1][0].get_gridspec()
    for one in axes[1]:
        one.remove()
    _after_the_end(figure.add_subplot(below[1, :]), probed)
    return figure


def _compare_forced(axes: Any, rows: Sequence[ForcedRow]) -> None:
    right, used, changed = axes
    name_lines(right, [row.way for row in rows])
    dots(right, [(row.score.accuracy, row.score.ci95_accuracy) for row in rows], style.BLUE, 100)
    right.xaxis.set_major_formatter(style.percent)
    right.set_xlabel("Accuracy")
    right.set_title("Forced thinking")
    for place, row in enumerate(rows):
        thought, probed = row.score.thinking_tokens, row.score.probe_tokens
        used.barh(place, thought, height=0.55, color=style.RULE if row.run else style.BASELINE)
        used.barh(place, probed, left=thought, height=0.55, color=style.PROBES)
        text = style.tokens(thought + probed)
        style.label(used, thought + probed, place, text, style.INK, fontsize=8, fontweight="normal")
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
