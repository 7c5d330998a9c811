"""Answers over the thinking budget: how many are given by then, how many of them are wrong, and what Grade they make."""

from __future__ import annotations

from typing import Any

import numpy as np

from cgr.lab.output import style
from cgr.lab.report.figures.view import View
from cgr.lab.report.numbers import earliest_best
from cgr.lab.report.result import GradeRow
from cgr.lab.score import accuracy as scores
from cgr.lab.types import Floats, Ints

BUDGET = "Thinking tokens"


def given_at(view: View) -> Ints:
    """When each trace answered, who always answers: at its sure probe, once its thinking ended, or at the budget."""
    decided, columns = view.shown, view.columns
    ended = columns.ended & (columns.natural < columns.limit)
    return np.where(decided.sure, decided.at, np.where(ended, columns.natural + 1, columns.limit))


def _cumulative(view: View) -> tuple[Floats, Floats]:
    when, right = given_at(view), view.shown.right
    good, bad = (scores.cumulative(view.columns, when, flags, view.steps) for flags in (right, ~right))
    return good, bad


def cumulative(view: View) -> Any:
    figure, axes = style.paper()
    x = np.append(0, view.steps)
    ends = []
    for values, colour, word in zip(_cumulative(view), (style.RIGHT, style.WRONG), ("correct", "incorrect"), strict=True):
        y = np.append(0, values)
        axes.plot(x[:-1], y[:-1], color=colour)
        axes.plot(x[-2:], y[-2:], color=colour, linestyle=(0, (1, 1.5)))
        axes.plot(x[-1], y[-1], "o", color=colour, markersize=6, clip_on=False)
        ends.append((x[-1], y[-1], f"{word} {y[-1]:.2f}", colour))
    axes.set_ylim(0, view.report.questions * 1.02)
    axes.set_xlim(0, view.columns.limit)
    style.end_labels(axes, ends)
    style.token_axis(axes.xaxis, BUDGET)
    axes.set_ylabel(f"Questions answered, of {view.report.questions}")
    axes.set_title(f"Answers given by each step ({view.name}); what is left lands at the budget")
    return figure


def ratio(view: View) -> Any:
    """Incorrect to correct, from the first step that has a correct answer."""
    good, bad = _cumulative(view)
    known = good > 0
    figure, axes = style.paper()
    x, y = view.steps[known], bad[known] / good[known]
    axes.plot(x, y, color=style.WRONG, marker="o", markersize=3.5)
    if len(x):
        style.label(axes, x[-1], y[-1], f"{y[-1]:.2f}", style.WRONG)
    axes.axhline(1, color=style.BASELINE, linewidth=1, linestyle=":")
    axes.set_ylim(0, max(1.1, 1.1 * float(y.max(initial=0))))
    axes.set_xlim(0, view.columns.limit)
    style.token_axis(axes.xaxis, BUDGET)
    axes.set_ylabel("Incorrect for each correct answer")
    axes.set_title(f"Incorrect to correct answers given by each step ({view.name})")
    return figure


def grade(view: View) -> Any:
    """One panel a penalty, one line a threshold; a dot where Grade is largest, a dotted line for the baseline."""
    penalties = sorted({row.penalty for row in view.report.grade})
    columns = min(2, len(penalties))
    rows = -(-len(penalties) // columns)
    figure, grid = style.paper(rows, columns, size=(8.4, 0.9 + 2.7 * rows), sharex=True, squeeze=False)
    for axes, penalty in zip(grid.flat, penalties, strict=False):
        _panel(axes, view, [row for row in view.report.grade if row.penalty == penalty])
    for axes in grid.flat[len(penalties) :]:
        axes.set_visible(False)
    for axes in grid[-1]:
        style.token_axis(axes.xaxis, BUDGET)
    lines = grid[0, 0].get_lines()[: len(view.report.thresholds)]
    names = [f"{row.threshold:g}" for row in view.report.thresholds]
    figure.legend(lines, names, loc="outside upper right", ncols=min(len(names), 8), title="threshold", title_fontsize=9)
    figure.suptitle("Grade over the budget, abstaining when not sure", x=0.01, ha="left", fontweight="bold", fontsize=11.5)
    return figure


def _panel(axes: Any, view: View, rows: list[GradeRow]) -> None:
    steps, curves = view.columns.steps, [np.array(row.over_budget) for row in rows]
    colours = style.shades(len(rows))
    for values, colour in zip(curves, colours, strict=True):
        axes.plot(steps, values, color=colour, linewidth=1.8)
    for values, colour in zip(curves, colours, strict=True):
        best = earliest_best(values)
        axes.plot(steps[best], values[best], "o", color=colour, markersize=5.5)
    baseline = rows[0].baseline
    axes.axhline(baseline, color=style.BASELINE, linewidth=1.2, linestyle=":")
    axes.set_xlim(0, view.columns.limit)
    axes.margins(y=0.1)
    axes.annotate(
        "baseline", (0.01, baseline), xycoords=("axes fraction", "data"), xytext=(0, 3), textcoords="offset points",
        color=style.BASELINE, fontsize=8.5,
    )  # fmt: skip
    axes.set_title(f"a wrong answer costs {rows[0].penalty:g}", fontsize=10, fontweight="normal", pad=6)
    axes.set_ylabel("Grade")
