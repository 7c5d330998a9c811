"""Figures of answers: over the thinking budget (right, wrong, Grade), and by seed against the baseline."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from cgr.lab.output import style
from cgr.lab.report.numbers import at, earliest_best
from cgr.lab.report.result import GradeRow
from cgr.lab.score import accuracy as scores
from cgr.lab.types import Floats, Ints

if TYPE_CHECKING:
    from cgr.lab.report.figures import FigureData

BUDGET = "Thinking tokens"


def given_at(data: FigureData) -> Ints:
    """When each trace is answered: at its sure probe, after the end of its thinking, or at the budget."""
    decided, columns = data.decided, data.columns
    ended = columns.ended & (columns.natural < columns.limit)
    return np.where(decided.sure, decided.at, np.where(ended, columns.natural + 1, columns.limit))


def _cumulative(data: FigureData) -> tuple[Floats, Floats]:
    when, right = given_at(data), data.decided.right
    good, bad = (scores.cumulative(data.columns, when, flags, data.steps) for flags in (right, ~right))
    return good, bad


def cumulative(data: FigureData) -> Any:
    """Correct and incorrect answers given by each step of the thinking budget; the rest is answered at the budget."""
    figure, axes = style.paper()
    x = np.append(0, data.steps)
    ends = []
    for values, colour, word in zip(_cumulative(data), (style.RIGHT, style.WRONG), ("correct", "incorrect"), strict=True):
        y = np.append(0, values)
        axes.plot(x[:-1], y[:-1], color=colour)
        axes.plot(x[-2:], y[-2:], color=colour, linestyle=(0, (1, 1.5)))
        axes.plot(x[-1], y[-1], "o", color=colour, markersize=6, clip_on=False)
        ends.append((x[-1], y[-1], f"{word} {y[-1]:.2f}", colour))
    questions = data.report.size.graded_questions
    axes.set(ylim=(0, questions * 1.02), xlim=(0, data.columns.limit), ylabel=f"Questions answered, of {questions}")
    style.end_labels(axes, ends)
    style.token_axis(axes.xaxis, BUDGET)
    style.title(axes, f"Answers given by each step ({data.name}); the rest at the budget")
    return figure


def ratio(data: FigureData) -> Any:
    """Incorrect answers for each correct one, among those given by each step."""
    good, bad = _cumulative(data)
    known = good > 0
    figure, axes = style.paper()
    x, y = data.steps[known], bad[known] / good[known]
    axes.plot(x, y, color=style.WRONG, marker="o", markersize=3.5)
    if len(x):
        style.label(axes, x[-1], y[-1], f"{y[-1]:.2f}", style.WRONG)
    most = float(y.max(initial=0))
    if most > 0.5:
        axes.axhline(1, color=style.BASELINE, linewidth=1, linestyle=":")
    axes.set(xlim=(0, data.columns.limit), ylim=(0, max(1.1, 1.1 * most) if most > 0.5 else 1.15 * max(most, 0.01)))
    style.token_axis(axes.xaxis, BUDGET)
    axes.set_ylabel("Incorrect for each correct answer")
    style.title(axes, f"Incorrect to correct answers given by each step ({data.name})")
    return figure


def grade(data: FigureData) -> Any:
    """Grade with abstention at each step, for each penalty and threshold. Dots: maxima; dotted line: baseline."""
    penalties = sorted({row.penalty for row in data.report.grade})
    columns = min(2, len(penalties))
    rows = -(-len(penalties) // columns)
    figure, grid = style.paper(rows, columns, size=(8.4, 0.9 + 2.7 * rows), sharex=True, squeeze=False)
    for axes, penalty in zip(grid.flat, penalties, strict=False):
        _grade_panel(axes, data, [row for row in data.report.grade if row.penalty == penalty])
    for axes in grid.flat[len(penalties) :]:
        axes.set_visible(False)
    for axes in grid[-1]:
        style.token_axis(axes.xaxis, BUDGET)
    lines = grid[0, 0].get_lines()[: len(data.report.thresholds)]
    names = [f"{row.threshold:g}" for row in data.report.thresholds]
    figure.legend(lines, names, loc="outside lower center", ncols=min(len(names), 8), title="threshold", title_fontsize=9)
    style.whole_title(figure, "Grade over the budget, abstaining below the threshold")
    return figure


def _grade_panel(axes: Any, data: FigureData, rows: list[GradeRow]) -> None:
    steps, curves = data.columns.steps, [np.array(row.over_budget) for row in rows]
    colours = style.shades(len(rows))
    for values, colour in zip(curves, colours, strict=True):
        axes.plot(steps, values, color=colour, linewidth=1.8)
    for values, colour in zip(curves, colours, strict=True):
        best = earliest_best(values)
        axes.plot(steps[best], values[best], "o", color=colour, markersize=5.5)
    baseline = rows[0].baseline or 0.0
    axes.axhline(baseline, color=style.BASELINE, linewidth=1.2, linestyle=":")
    axes.set(xlim=(0, data.columns.limit), ylabel="Grade")
    axes.margins(y=0.1)
    style.beside_axis(axes, 0.01, baseline, "baseline", (0, 3), color=style.BASELINE, fontsize=8.5)
    axes.set_title(f"a wrong answer costs {rows[0].penalty:g}", fontsize=10, fontweight="normal", pad=6)


def by_seed(data: FigureData) -> Any:
    """Correct answers of each seed, baseline and rule."""
    columns = data.columns
    base, rule = (scores.correct_by_seed(columns, right) for right in (columns.final_right, data.decided.right))
    x = np.arange(len(base))
    figure, axes = style.paper(size=width_for(len(base)))
    axes.vlines(x, np.minimum(base, rule), np.maximum(base, rule), color="#bdbdbd", linewidth=1.2)
    axes.plot(x, base, "o", color=style.BASELINE, markerfacecolor="white", markersize=6.5, markeredgewidth=1.3)
    axes.plot(x, rule, "o", color=style.RULE, markersize=4)
    for values, colour in ((base, style.BASELINE), (rule, style.RULE)):
        axes.axhline(values.mean(), color=colour, linewidth=1, linestyle=":")
    seed_axis(axes, data)
    end = axes.get_xlim()[1]
    named = (("baseline", base.mean(), style.BASELINE), (data.name, rule.mean(), style.RULE))
    style.end_labels(axes, [(end, float(mean), f"{name}: {mean:.2f}", colour) for name, mean, colour in named])
    axes.yaxis.get_major_locator().set_params(integer=True)
    axes.set_ylabel(f"Correct, of {data.report.size.graded_questions}")
    axes.set_title("Correct answers by seed; dotted: means")
    return figure


def distance(data: FigureData) -> Any:
    """Difference in correct answers between rule and baseline for each seed."""
    columns = data.columns
    change = scores.correct_by_seed(columns, data.decided.right) - scores.correct_by_seed(columns, columns.final_right)
    row = at(data.report.thresholds, data.report.shown)
    x = np.arange(len(change))
    figure, axes = style.paper(size=width_for(len(change)))
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
    seed_axis(axes, data)
    axes.set_ylabel("Difference in correct answers")
    style.title(axes, f"Difference from the baseline by seed ({data.name})")
    return figure


def _corner(axes: Any, place: tuple[float, float], text: str, colour: str, **options: Any) -> None:
    axes.text(*place, text, color=colour, transform=axes.transAxes, fontweight="bold", **options)


def width_for(seeds: int) -> tuple[float, float]:
    """The size of a figure that has one mark for each seed."""
    return (min(max(style.SIZE[0], 3 + 0.11 * seeds), 14), style.SIZE[1])


def seed_axis(axes: Any, data: FigureData) -> None:
    """Seeds along the x axis, with margins that keep a few bars narrow."""
    seed_ticks(axes.xaxis, data)
    room = 0.7 + max(0, 8 - len(data.columns.seeds)) / 2
    axes.set_xlim(-room, len(data.columns.seeds) - 1 + room)
    axes.grid(visible=False, axis="x")


def seed_ticks(axis: Any, data: FigureData) -> None:
    """Label at most about twenty of the seeds."""
    seeds = data.columns.seeds
    every = -(-len(seeds) // 20)
    axis.set_ticks(range(0, len(seeds), every), [str(seed) for seed in seeds[::every]])
    axis.set_label_text("Seed")
