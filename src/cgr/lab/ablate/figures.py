"""Parts that the figures of ablations share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from cgr.lab.output import style
from cgr.lab.score.paired import MARGIN, Score
from cgr.lab.types import Floats, Interval


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
    axes.annotate(
        "equal: interval above −1 point", (0.995, MARGIN), xycoords=("axes fraction", "data"), xytext=(0, -4),
        textcoords="offset points", ha="right", va="top", fontsize=8, color=style.BASELINE,
    )  # fmt: skip


def dots(axes: Any, values: Sequence[tuple[float, Interval | None] | None], colour: Any, scale: float = 1) -> None:
    """Draw a value and its interval on each line; None is written as text. A `scale` of 100 labels in percent."""
    for place, one in enumerate(values):
        if one is None:
            axes.annotate(
                "at no threshold", (0.5, place), xycoords=("axes fraction", "data"), ha="center", va="center", fontsize=8.5
            )
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
    """Shorten each line to fit beside the panels; escape dollar signs, which would start a formula."""
    lines = (line if len(line) <= 38 else f"{line[:20]}…{line[-16:]}" for line in name.replace(" (", "\n(").split("\n"))
    return "\n".join(lines).replace("$", "\\$")
