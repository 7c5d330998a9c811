"""Figures of tokens: used and saved by seed and by question, and accuracy against tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from cgr.lab.output import signed, style
from cgr.lab.report.figures.answers import seed_axis, seed_ticks, width_for
from cgr.lab.report.numbers import at
from cgr.lab.report.result import BudgetRow, Report, TradeOffRow
from cgr.lab.score import accuracy as scores
from cgr.records import visible_line

if TYPE_CHECKING:
    from cgr.lab.report.figures import FigureData

MAX_NAMES = 48  # more questions than this are not named on the axis
LEAST, DEPTH = 0.06, 0.2  # the range of accuracy shown: at least, and at most below the baseline


def saved_by_seed(data: FigureData) -> Any:
    """Tokens of each seed: thinking, probes, and what is saved net of them."""
    columns, decided = data.columns, data.decided
    used, probes, natural = (
        scores.by_seed(columns, values) for values in (decided.at, decided.probe_tokens, columns.natural)
    )
    x, cost = np.arange(len(used)), used + probes
    saved = np.maximum(natural - cost, 0)
    figure, axes = style.paper(size=width_for(len(used)))
    for values, bottom, colour in ((used, 0, style.RULE), (probes, used, style.PROBES), (saved, cost, style.SAVED)):
        axes.bar(x, values, width=0.75, bottom=bottom, color=colour)
    seed_axis(axes, data)
    net = at(data.report.savings, data.report.shown).net_share
    texts = f"thinking, {data.name}", "probes", f"saved, net: {style.percent(round(net, 3))}"
    places = used[-1] / 2, used[-1] + probes[-1] / 2, cost[-1] + saved[-1] / 2
    ends = zip(places, texts, (style.RULE, "#a87400", "#4f9c82"), strict=True)
    style.end_labels(axes, [(axes.get_xlim()[1], float(place), text, colour) for place, text, colour in ends])
    style.token_axis(axes.yaxis, "Tokens")
    axes.set_title("Tokens used and saved by seed")
    return figure


def heat_map(data: FigureData) -> Any:
    """Tokens saved for each question and seed, net of probes. A trace that cost more than it saved counts as 0."""
    columns = data.columns
    cells = np.full((len(columns.questions), len(columns.seeds)), np.nan)
    cells[columns.question, columns.seed] = scores.saved(columns, data.decided) - data.decided.probe_tokens
    order = np.argsort(-np.nan_to_num(np.nanmean(cells, axis=1)), kind="stable")
    height = max(2.8, 1.2 + 0.17 * len(order)) if len(order) <= MAX_NAMES else 6
    figure, axes = style.paper(size=(min(max(5.5, 2.6 + 0.11 * len(columns.seeds)), 12), height))
    axes.set_facecolor("#d0d0d0")
    shown = np.ma.masked_invalid(cells[order])
    image = axes.imshow(shown, aspect="auto", cmap=style.SCALE, interpolation="nearest", vmin=0)
    bar = figure.colorbar(image, ax=axes, fraction=0.04, pad=0.02)
    bar.outline.set_visible(False)
    style.token_axis(bar.ax.yaxis, "Tokens saved, net of probes")
    axes.grid(visible=False)
    _question_ticks(axes.yaxis, [columns.questions[place] for place in order])
    seed_ticks(axes.xaxis, data)
    axes.set(ylabel="Question, most saved first")
    style.whole_title(figure, f"Tokens saved by seed and question ({data.name})")
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
    """Share of tokens saved on each question, net of probes: a ranking of difficulty."""
    columns = data.columns
    natural = np.maximum(scores.by_question(columns, columns.natural), 1)
    saved = scores.saved(columns, data.decided) - data.decided.probe_tokens
    share = scores.by_question(columns, saved) / natural
    order = np.argsort(share, kind="stable")
    named = len(order) <= MAX_NAMES
    figure, axes = style.paper(size=(7.2, max(3, 1.2 + 0.2 * len(order)) if named else 6))
    colours = _accuracy_colours(data, figure, axes)[order]
    axes.barh(np.arange(len(order)), share[order], height=0.78 if named else 1, color=colours)
    _question_ticks(axes.yaxis, [columns.questions[place] for place in order])
    axes.grid(visible=False, axis="y")
    axes.xaxis.set_major_formatter(style.percent)
    axes.axvline(0, color="#9a9a9a", linewidth=0.8)
    axes.set(ylim=(-0.7, len(order) - 0.3), xlabel="Share of tokens saved, net of probes")
    axes.set_ylabel("Question, hardest at the bottom")
    style.whole_title(figure, f"Savings as a ranking of difficulty ({data.name})")
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
    """The trade-off: accuracy against tokens, probes included, for every threshold, beside fixed budgets. Square: the fixed
    budget of the same cost as the shown threshold."""
    report = data.report
    figure, axes = style.paper()
    axes.plot(*_places(report.budget_sweep), color=style.BASELINE, linestyle="--", linewidth=1.2, label="fixed budgets")
    x, y = _places(report.trade_off)
    axes.plot(x, y, color=style.RULE, marker="o", markersize=4, label=f"{report.rule}, with probe tokens")
    full = report.baseline
    axes.plot(full.thinking_tokens_mean, full.accuracy, "D", color=style.INK, markersize=7, label="baseline")
    _mark_fixed(axes, report)
    accuracy_against_tokens(figure, axes, "Tokens per trace (mean), probes included", 0.12)
    low, high = _accuracies(report)
    axes.set_ylim(low, high)
    inside = [(row, place) for row, place in zip(report.trade_off, x, strict=True) if (row.accuracy or 0) >= low]
    for row, place in _with_room(inside, report.shown, 0.06 * (high - low)):
        style.label(axes, place, row.accuracy or 0, f"{row.threshold:g}", style.RULE, dx=0, dy=9, ha="center", fontsize=8.5)
    axes.set_title("Accuracy against tokens; numbers are thresholds")
    return figure


def _places(rows: Sequence[BudgetRow | TradeOffRow]) -> tuple[list[float], list[float]]:
    """Mean cost and accuracy of each row; a fixed budget makes no probes."""
    cost = [row.thinking_tokens_mean + getattr(row, "probe_tokens_mean", 0.0) for row in rows]
    return cost, [row.accuracy or 0.0 for row in rows]


def _accuracies(report: Report) -> tuple[float, float]:
    """The limits of the accuracy axis: all of the rule, and fixed budgets only if they are near."""
    _, rule = _places(report.trade_off)
    full = report.baseline.accuracy or 0.0
    high = max(*rule, full, *_places(report.budget_sweep)[1])
    low = max(min(*rule, full, high - LEAST), full - DEPTH)
    return low - 0.1 * (high - low), high + 0.16 * (high - low)


def _mark_fixed(axes: Any, report: Report) -> None:
    """A square on the line of fixed budgets at the cost of the shown threshold, and a line to that threshold."""
    row = at(report.adaptive, report.shown)
    cost, fixed = row.cost_mean, row.fixed_accuracy
    if fixed is None:
        return
    axes.plot([cost, cost], [fixed, row.accuracy], color=style.BASELINE, linewidth=1)
    label = f"fixed budget that costs as much as {report.shown:g}: {style.percent(round(fixed, 3))}"
    axes.plot(
        cost, fixed, "s", color=style.BASELINE, markerfacecolor="white", markersize=7, markeredgewidth=1.5, label=label
    )


def accuracy_against_tokens(figure: Any, axes: Any, tokens: str, room: float) -> None:
    """Give a figure of accuracy against tokens its legend and its axes. `tokens`: the label of the x axis; `room`: a share
    of the height that stays free above and below."""
    figure.legend(loc="outside lower center", ncols=2)
    axes.margins(y=room)
    axes.set(xlim=(0, None), ylabel="Accuracy")
    axes.yaxis.set_major_formatter(style.percent)
    style.token_axis(axes.xaxis, tokens)


def _with_room(points: list[tuple[TradeOffRow, float]], shown: float, height: float) -> list[tuple[TradeOffRow, float]]:
    """The points whose labels overlap neither each other nor a point above; the shown threshold is always among them.
    `height`: of a label, in accuracy."""
    gap = 0.06 * max((place for _, place in points), default=0.0)
    kept: list[tuple[TradeOffRow, float]] = []
    for row, place in sorted(points, key=lambda point: point[0].threshold != shown):
        free = all(
            abs(place - other) >= gap / 2 or not 0 < (above.accuracy or 0) - (row.accuracy or 0) < height
            for above, other in points
        )
        if (free or row.threshold == shown) and all(abs(place - other) >= gap for _, other in kept):
            kept.append((row, place))
    return kept
