"""Figures of tokens: used and saved by seed and by question, and accuracy against tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from cgr.lab.output import signed, style
from cgr.lab.report.figures.answers import seed_axis, seed_ticks, width_for
from cgr.lab.report.numbers import at
from cgr.lab.report.result import TradeOffRow
from cgr.lab.score import accuracy as scores
from cgr.records import visible_line

if TYPE_CHECKING:
    from cgr.lab.report.figures import FigureData

MAX_NAMES = 48  # more questions than this are not named on the axis


def saved_by_seed(data: FigureData) -> Any:
    """Thinking tokens used and saved for each seed."""
    columns = data.columns
    used, saved = (scores.by_seed(columns, values) for values in (data.decided.at, scores.saved(columns, data.decided)))
    x = np.arange(len(used))
    figure, axes = style.paper(size=width_for(len(used)))
    axes.bar(x, used, width=0.75, color=style.RULE)
    axes.bar(x, saved, width=0.75, bottom=used, color=style.SAVED)
    row = at(data.report.savings, data.report.shown)
    seed_axis(axes, data)
    end, share = axes.get_xlim()[1], style.percent(round(row.share, 3))
    first = (end, float(used[-1] / 2), f"used by {data.name}", style.RULE)
    style.end_labels(axes, [first, (end, float(used[-1] + saved[-1] / 2), f"saved: {share}", "#4f9c82")])
    style.token_axis(axes.yaxis, "Thinking tokens")
    axes.set_title(f"Tokens used and saved by seed: {style.tokens(row.per_seed)} saved on average")
    return figure


def heat_map(data: FigureData) -> Any:
    """Thinking tokens saved for each question and seed."""
    columns = data.columns
    cells = np.full((len(columns.questions), len(columns.seeds)), np.nan)
    cells[columns.question, columns.seed] = scores.saved(columns, data.decided)
    order = np.argsort(-np.nan_to_num(np.nanmean(cells, axis=1)), kind="stable")
    height = max(2.8, 1.2 + 0.17 * len(order)) if len(order) <= MAX_NAMES else 6
    figure, axes = style.paper(size=(min(max(5.5, 2.6 + 0.11 * len(columns.seeds)), 12), height))
    axes.set_facecolor("#d0d0d0")
    shown = np.ma.masked_invalid(cells[order])
    image = axes.imshow(shown, aspect="auto", cmap=style.SCALE, interpolation="nearest", vmin=0)
    bar = figure.colorbar(image, ax=axes, fraction=0.04, pad=0.02)
    bar.outline.set_visible(False)
    style.token_axis(bar.ax.yaxis, "Thinking tokens saved")
    axes.grid(visible=False)
    _question_ticks(axes.yaxis, [columns.questions[place] for place in order])
    seed_ticks(axes.xaxis, data)
    axes.set(ylabel="Question, most saved first", title=f"Tokens saved per seed per question ({data.name})")
    return figure


def used(data: FigureData) -> Any:
    """All tokens used: the full budget, the baseline, and the rule at each threshold with its probe tokens."""
    columns, report = data.columns, data.report
    natural, budget = int(columns.natural.sum()), int(columns.budget.sum())
    bars = [("full budget", budget, 0, "#cfcfcf"), ("baseline", natural, 0, style.BASELINE)]
    for row in report.savings:
        bars.append((f"{report.rule} at {row.threshold:g}", natural - row.total, row.probe_tokens, style.RULE))
    figure, axes = style.paper(size=(7.2, 1.2 + 0.42 * len(bars)))
    for place, (name, thought, probed, colour) in enumerate(reversed(bars)):
        axes.barh(place, thought, height=0.68, color=colour)
        axes.barh(place, probed, height=0.68, left=thought, color=style.PROBES)
        total, text = thought + probed, style.tokens(thought + probed)
        if natural and name not in ("full budget", "baseline"):
            text += f"  {signed(f'{100 * (total / natural - 1):+.1f}')}%"
        style.label(axes, total, place, text, style.INK, fontweight="normal")
    axes.set_yticks(range(len(bars)), [name for name, _, _, _ in reversed(bars)])
    axes.grid(visible=False, axis="y")
    style.token_axis(axes.xaxis, "Thinking tokens; orange: tokens decoded by probes")
    axes.set_title("Tokens used, and the change from the baseline")
    return figure


def by_question(data: FigureData) -> Any:
    """Share of thinking tokens saved on each question: a ranking of difficulty."""
    columns = data.columns
    natural = np.maximum(scores.by_question(columns, columns.natural), 1)
    share = scores.by_question(columns, scores.saved(columns, data.decided)) / natural
    order = np.argsort(share, kind="stable")
    named = len(order) <= MAX_NAMES
    figure, axes = style.paper(size=(7.2, max(3, 1.2 + 0.2 * len(order)) if named else 6))
    colours = _accuracy_colours(data, figure, axes)[order]
    axes.barh(np.arange(len(order)), share[order], height=0.78 if named else 1, color=colours)
    _question_ticks(axes.yaxis, [columns.questions[place] for place in order])
    axes.grid(visible=False, axis="y")
    axes.xaxis.set_major_formatter(style.percent)
    axes.set(xlim=(0, None), ylim=(-0.7, len(order) - 0.3), xlabel="Share of thinking tokens saved")
    axes.set(ylabel="Question, hardest at the bottom", title=f"Savings as a ranking of difficulty ({data.name})")
    return figure


def _accuracy_colours(data: FigureData, figure: Any, axes: Any) -> Any:
    """A colour for each question by the baseline's accuracy on it, and a colour bar; one colour without golds."""
    import matplotlib
    from matplotlib.cm import ScalarMappable

    columns = data.columns
    graded = scores.by_question(columns, columns.graded)
    if not graded.any():
        return np.full(len(columns.questions), style.RULE)
    right = scores.by_question(columns, columns.final_right & columns.graded)
    scale = ScalarMappable(cmap=matplotlib.colormaps[style.SCALE])
    scale.set_clim(0, 1)
    bar = figure.colorbar(scale, ax=axes, fraction=0.04, pad=0.02, format=style.percent)
    bar.outline.set_visible(False)
    bar.set_label("Baseline accuracy")
    colours = scale.to_rgba(right / np.maximum(graded, 1))
    colours[graded == 0] = matplotlib.colors.to_rgba("#cfcfcf")
    return colours


def _question_ticks(axis: Any, names: list[str]) -> None:
    if len(names) <= MAX_NAMES:
        shown = [visible_line(name) for name in names]
        axis.set_ticks(range(len(names)), [name if len(name) <= 18 else name[:17] + "…" for name in shown], fontsize=8)
    else:
        axis.set_ticks([])


def trade_off(data: FigureData) -> Any:
    """The trade-off: accuracy against tokens for every threshold, beside smaller fixed budgets."""
    report = data.report
    figure, axes = style.paper()
    x, y = zip(*((row.thinking_tokens_mean, row.accuracy) for row in report.budget_sweep), strict=True)
    axes.plot(x, y, color=style.BASELINE, marker="s", markersize=3, linewidth=1.2, label="smaller fixed budgets")
    rows = report.trade_off
    x, y = zip(*((row.thinking_tokens_mean + row.probe_tokens_mean, row.accuracy) for row in rows), strict=True)
    axes.plot(x, y, color=style.RULE, marker="o", markersize=4, label=f"{report.rule}, with probe tokens")
    for row, place in _with_room(list(zip(rows, x, strict=True)), report.shown):
        style.label(axes, place, row.accuracy or 0, f"{row.threshold:g}", style.RULE, dx=0, dy=9, ha="center", fontsize=8.5)
    full = report.baseline
    axes.plot(full.thinking_tokens_mean, full.accuracy, "D", color=style.INK, markersize=7, label="baseline")
    accuracy_against_tokens(figure, axes, "Tokens per trace (mean)", 0.12)
    axes.set_title("Accuracy against tokens; numbers are thresholds")
    return figure


def accuracy_against_tokens(figure: Any, axes: Any, tokens: str, room: float) -> None:
    """Give a figure of accuracy against tokens its legend and its axes. `tokens`: the label of the x axis; `room`: a share
    of the height that stays free above and below."""
    figure.legend(loc="outside lower center", ncols=3)
    axes.margins(y=room)
    axes.set(xlim=(0, None), ylabel="Accuracy")
    axes.yaxis.set_major_formatter(style.percent)
    style.token_axis(axes.xaxis, tokens)


def _with_room(points: list[tuple[TradeOffRow, float]], shown: float) -> list[tuple[TradeOffRow, float]]:
    """The points whose labels do not overlap; the shown threshold is always among them."""
    gap = 0.06 * max(place for _, place in points)
    kept: list[tuple[TradeOffRow, float]] = []
    for row, place in sorted(points, key=lambda point: point[0].threshold != shown):
        if all(abs(place - other) >= gap for _, other in kept):
            kept.append((row, place))
    return kept
