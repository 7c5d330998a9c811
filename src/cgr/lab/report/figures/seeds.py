"""Seed by seed: accuracy beside the baseline's, and the distance between them."""

from __future__ import annotations

from typing import Any

import numpy as np

from cgr.lab.output import style
from cgr.lab.report.figures.view import View
from cgr.lab.score import accuracy as scores


def accuracy(view: View) -> Any:
    columns = view.columns
    base, rule = (scores.correct_by_seed(columns, right) for right in (columns.final_right, view.shown.right))
    x = np.arange(len(base))
    figure, axes = style.paper(size=wide(len(base)))
    axes.vlines(x, np.minimum(base, rule), np.maximum(base, rule), color="#bdbdbd", linewidth=1.2)
    axes.plot(x, base, "o", color=style.BASELINE, markerfacecolor="white", markersize=6.5, markeredgewidth=1.3)
    axes.plot(x, rule, "o", color=style.RULE, markersize=4)
    for values, colour in ((base, style.BASELINE), (rule, style.RULE)):
        axes.axhline(values.mean(), color=colour, linewidth=1, linestyle=":")
    seed_axis(axes, view)
    end = axes.get_xlim()[1]
    ends = [
        (end, float(base.mean()), f"baseline: {base.mean():.2f}", style.BASELINE),
        (end, float(rule.mean()), f"{view.name}: {rule.mean():.2f}", style.RULE),
    ]
    style.end_labels(axes, ends)
    axes.yaxis.get_major_locator().set_params(integer=True)
    axes.set_ylabel(f"Correct, of {view.report.questions}")
    axes.set_title("Correct answers by seed; dotted: means")
    return figure


def distance(view: View) -> Any:
    columns = view.columns
    change = scores.correct_by_seed(columns, view.shown.right) - scores.correct_by_seed(columns, columns.final_right)
    row = view.report.at(view.report.shown)
    x = np.arange(len(change))
    figure, axes = style.paper(size=wide(len(change)))
    axes.bar(x, change, width=0.75, color=np.where(change > 0, style.RIGHT, style.WRONG))
    same = change == 0
    axes.plot(x[same], change[same], "_", color=style.BASELINE, markersize=6, markeredgewidth=2)
    axes.axhline(0, color="#9a9a9a", linewidth=0.8)
    low, high = min(-1.0, float(change.min())), max(1.0, float(change.max()))
    axes.set_ylim(low - 0.15 * (high - low), high + 0.15 * (high - low))
    axes.yaxis.get_major_locator().set_params(integer=True)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:+.0f}".replace("-", "−") if value else "0")
    _corner(axes, (0.005, 0.97), f"{row.better} better", style.RIGHT, va="top")
    _corner(axes, (0.005, 0.03), f"{row.worse} worse", style.WRONG, va="bottom")
    _corner(axes, (0.995, 0.97), f"{row.equal} equal", style.BASELINE, va="top", ha="right")
    seed_axis(axes, view)
    axes.set_ylabel("Correct answers more or less")
    axes.set_title(f"Distance from the baseline by seed ({view.name})")
    return figure


def _corner(axes: Any, place: tuple[float, float], text: str, colour: str, **options: Any) -> None:
    axes.text(*place, text, color=colour, transform=axes.transAxes, fontweight="bold", **options)


def wide(seeds: int) -> tuple[float, float]:
    return (min(max(style.SIZE[0], 3 + 0.11 * seeds), 14), style.SIZE[1])


def seed_axis(axes: Any, view: View) -> None:
    seed_ticks(axes.xaxis, view)
    room = 0.7 + max(0, 8 - len(view.columns.seeds)) / 2  # a few bars need not fill the paper
    axes.set_xlim(-room, len(view.columns.seeds) - 1 + room)
    axes.grid(visible=False, axis="x")


def seed_ticks(axis: Any, view: View) -> None:
    """At most some twenty of the seeds by name."""
    seeds = view.columns.seeds
    every = -(-len(seeds) // 20)
    axis.set_ticks(range(0, len(seeds), every), [str(seed) for seed in seeds[::every]])
    axis.set_label_text("Seed")
