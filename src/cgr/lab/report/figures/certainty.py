"""Figures of certainty: its distribution, its growth over the thinking, calibration, and risk against coverage."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from cgr.lab.output import style
from cgr.lab.report.figures.answers import BUDGET
from cgr.lab.score.calibration import Selective, best, effective, risk_coverage
from cgr.lab.types import Bools, Floats

if TYPE_CHECKING:
    from cgr.lab.report.figures import FigureData

BINS = 40


def histogram(data: FigureData) -> Any:
    """Distribution of certainty over probes, by whether the answer was right: shows how polarised a model is."""
    columns = data.columns
    there = columns.present & columns.closed
    graded = there & columns.graded[:, None]
    groups = [
        (columns.certainty[graded & columns.right], style.RIGHT, "right"),
        (columns.certainty[graded & ~columns.right], style.WRONG, "wrong"),
        (columns.certainty[there & ~graded], style.BASELINE, "no known answer"),
    ]
    groups = [group for group in groups if len(group[0])]
    figure, axes = style.paper()
    weights = [np.full(len(values), 1 / there.sum()) for values, _, _ in groups]
    axes.hist(
        [values for values, _, _ in groups], bins=np.linspace(0, 1, BINS + 1), weights=weights, stacked=True,
        color=[colour for _, colour, _ in groups], edgecolor="white", linewidth=0.5,
        label=[f"{word} ({len(values):,})" for values, _, word in groups],
    )  # fmt: skip
    axes.grid(visible=False, axis="x")
    axes.axvline(data.report.shown, color=style.INK, linewidth=1, linestyle=":")
    axes.legend(loc="upper center", title=f"{there.sum():,} closed probes", alignment="left", reverse=True)
    axes.yaxis.set_major_formatter(style.percent)
    axes.set(xlim=(0, 1), xlabel=f"Certainty (dotted: the threshold {data.report.shown:g})")
    axes.set(ylabel="Share of probes", title="Certainty of probes")
    return figure


def average(data: FigureData) -> Any:
    """Mean certainty at each step: of the traces still thinking (band: SD over seeds; below: their number), and of all
    traces, with ended traces at their final certainty."""
    grid, running, carried = certainty_by_step(data)
    figure, (axes, below) = style.paper(2, 1, size=(7.2, 5), sharex=True, height_ratios=(4, 1))
    count = running.sum(axis=0)
    shown = count > 0
    steps = data.columns.steps
    mean = np.where(running, grid, 0.0).sum(axis=0)[shown] / count[shown]
    spread = spread_over_seeds(data, grid, running)[shown]
    low, high = np.maximum(mean - spread, 0), np.minimum(mean + spread, 1)
    axes.fill_between(steps[shown], low, high, color=style.BLUE, alpha=0.18, linewidth=0)
    text = "still thinking" + (" (band: SD over seeds)" if spread.any() else "")
    axes.plot(steps[shown], mean, color=style.BLUE, marker="o", markersize=3, label=text)
    text = "all traces (ended ones at their final certainty)"
    axes.plot(steps, carried.mean(axis=0), color=style.INK, linestyle="--", linewidth=1.5, label=text)
    axes.legend(loc="lower right")
    axes.set(ylim=(0, 1.02), ylabel="Certainty", title="Average certainty at each step")
    width = 0.7 * (steps[1] - steps[0] if len(steps) > 1 else steps[0])
    below.bar(steps, count, width=width, color=style.FAINT, edgecolor="#bdbdbd", linewidth=0.5)
    below.set_xlim(0, data.columns.limit)
    style.token_axis(below.yaxis, "Traces")
    style.token_axis(below.xaxis, BUDGET)
    return figure


def spread_over_seeds(data: FigureData, grid: Floats, running: Bools) -> Floats:
    """Standard deviation over seeds of the mean at each step; 0 where fewer than two seeds have a running trace."""
    seeds = data.columns.seed[:, None] == np.arange(len(data.columns.seeds))
    count = seeds.T.astype(np.float64) @ running
    means = (seeds.T.astype(np.float64) @ np.where(running, grid, 0.0)) / np.maximum(count, 1)
    there = count > 0
    many = there.sum(axis=0)
    centre = (means * there).sum(axis=0) / np.maximum(many, 1)
    squares = (np.square(means - centre) * there).sum(axis=0)
    return np.where(many > 1, np.sqrt(squares / np.maximum(many - 1, 1)), 0.0)


def certainty_by_step(data: FigureData) -> tuple[Floats, Bools, Floats]:
    """(certainty, running, carried) by trace and step: `certainty` where a probe was made (`running`), and `carried`
    with the last known value in every other place."""
    columns = data.columns
    found = columns.on_grid(columns.steps)
    running = found >= 0
    known = effective(columns.certainty, columns.closed)
    rows = np.arange(len(columns))[:, None]
    grid = np.where(running, known[rows, np.maximum(found, 0)], 0.0)
    finals = effective(columns.final_certainty, columns.final_closed)[:, None]
    carried = np.where(running, grid, 0.0)
    for step in range(1, carried.shape[1]):
        carried[:, step] = np.where(running[:, step], grid[:, step], carried[:, step - 1])
    ended = columns.natural[:, None] < columns.steps
    return grid, running, np.where(ended, finals, carried)


def reliability(data: FigureData) -> Any:
    """Share of right answers at each certainty; the size of a marker shows the share of answers in its bin."""
    figure, axes = style.paper(size=(5.4, 5.6))
    axes.plot([0, 1], [0, 1], color=style.BASELINE, linewidth=1, linestyle=":", label="perfect calibration")
    for row, colour, marker in zip(data.report.selective, (style.INK, style.BLUE), ("D", "o"), strict=False):
        if (found := row.selective).count:
            _bins(axes, found, colour, marker, f"{row.among}: {found.count:,}, ECE {found.ece:.3f}")
    figure.legend(loc="outside lower center")
    axes.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), aspect="equal", title="Is certainty calibrated?")
    axes.set(xlabel="Certainty (mean of the bin)", ylabel="Share that is right")
    return figure


def _bins(axes: Any, found: Selective, colour: str, marker: str, text: str) -> None:
    """One line; the size of a marker shows the share of answers in its bin."""
    x = [one.certainty for one in found.reliability]
    y = [one.accuracy for one in found.reliability]
    area = [15 + 180 * one.count / found.count for one in found.reliability]
    axes.plot(x, y, color=colour, linewidth=1.2, alpha=0.6)
    axes.scatter(x, y, s=area, color=colour, alpha=0.8, marker=marker, linewidths=0, clip_on=False, zorder=3)
    axes.plot([], [], color=colour, marker=marker, linewidth=1.2, label=text)


def risk(data: FigureData) -> Any:
    """Share of wrong answers among the most certain answers."""
    columns = data.columns
    graded, decided = columns.graded, data.decided
    finals = effective(columns.final_certainty, columns.final_closed)[graded]
    right = columns.final_right[graded]
    curves = [(finals, right, style.INK, "final answers of the baseline")]
    if decided.fired:
        answers = effective(decided.certainty, decided.closed)[graded]
        curves.append((answers, decided.right[graded], style.RULE, data.name))
    figure, axes = style.paper()
    for certainty, answers_right, colour, word in curves:
        curve = risk_coverage(certainty, answers_right)
        coverage, share = curve.smooth()
        few = min(len(coverage) // 50, len(coverage) - 1)  # the first points are means of very few answers
        axes.plot(coverage[few:], share[few:], color=colour, label=f"{word}: AURC {curve.area:.3f}")
        _mark_sure(axes, certainty, answers_right, data.report.shown, colour)
    axes.plot(*best(right).smooth(), color=style.BASELINE, linestyle="--", linewidth=1, label="best possible order")
    axes.axhline(1 - right.mean(), color=style.BASELINE, linestyle=":", linewidth=1, label="random order")
    axes.plot([], [], "o", color=style.BASELINE, label=f"answers with certainty of at least {data.report.shown:g}")
    figure.legend(loc="outside lower center", ncols=2)
    axes.xaxis.set_major_formatter(style.percent)
    axes.yaxis.set_major_formatter(style.percent)
    axes.set(xlim=(0, 1), ylim=(0, None), title="Risk and coverage when abstaining")
    axes.set(xlabel="Coverage: share answered, most certain first", ylabel="Risk: share of these that is wrong")
    return figure


def _mark_sure(axes: Any, certainty: Floats, right: Bools, threshold: float, colour: str) -> None:
    sure = certainty >= threshold
    if sure.any():
        axes.plot(sure.mean(), 1 - right[sure].mean(), "o", color=colour, markersize=7, markeredgecolor="white")
