"""The figure of a comparison: accuracy against tokens for each rule, and the tokens saved at equal accuracy."""

from __future__ import annotations

from typing import Any

import numpy as np

from cgr.lab.compare.result import Compared, Entry, Point
from cgr.lab.compare.tables import number
from cgr.lab.output import style
from cgr.lab.score.agreement import worded
from cgr.lab.score.bounds import WORSE

BASELINE_RULE = "fixed-budget"
# The palette of the other figures first, then colours that differ from them.
COLOURS = (
    *(style.BLUE, style.RED, style.GREEN, "#B4588A", "#B87A00", "#2E86C1"),
    *("#8C510A", "#5E3C99", "#B2182B", "#1B7837", "#2A7F78", "#C51B7D", "#4D4D4D", "#7A6C00"),
)
PANELS_IN_ROW = (4, 3)
LEAST, DEPTH = 0.06, 0.2  # the range of accuracy shown: at least, and at most below the full budget


def colours(compared: Compared) -> dict[str, str]:
    """A colour for each rule, by alphabetical order, so that runs with the same rules have the same colours."""
    names = sorted(entry.rule for entry in compared.entries if entry.rule != BASELINE_RULE)
    return {name: COLOURS[place % len(COLOURS)] for place, name in enumerate(names)} | {BASELINE_RULE: style.BASELINE}


def draw(compared: Compared) -> Any:
    """On the left a panel for each rule, with the other rules in grey; on the right the savings of all rules."""
    from matplotlib.figure import Figure

    count = len(compared.entries)
    across = min(count, 2) if count <= 4 else min(PANELS_IN_ROW, key=lambda wide: -count % wide)  # with the fewest gaps
    down = -(-count // across)
    widths = max(2.15 * across, 6.8), 4.4
    sheet = Figure(figsize=(sum(widths), max(1.2 + 2.05 * down, 1.5 + 0.3 * count, 3.8)), layout="constrained")
    left, right = np.ravel(np.asarray(sheet.subfigures(1, 2, width_ratios=widths)))
    tones = colours(compared)
    panels = left.subplots(down, across, sharex=True, sharey=True, squeeze=False)
    for axes, entry in zip(panels.flat, compared.entries, strict=False):
        _panel(axes, entry, compared, tones)
    for axes in panels.flat[count:]:
        axes.set_visible(False)
    _frame(left, panels, compared)
    _savings(right.subplots(), compared, tones)
    return sheet


def _frame(figure: Any, panels: Any, compared: Compared) -> None:
    axes = panels[0, 0]
    axes.set(xlim=(0, 1.08 * compared.whole_baseline.net_tokens), ylim=_accuracies(compared))
    axes.yaxis.set_major_formatter(style.percent)
    axes.xaxis.set_major_formatter(style.tokens)
    axes.locator_params(axis="x", nbins=4)
    count = len(compared.entries)
    for place, panel in enumerate(panels.flat[:count]):
        panel.tick_params(labelsize=8, labelbottom=place + panels.shape[1] >= count)
    title = worded("Accuracy against tokens for each rule, on all questions", compared.reference)
    figure.suptitle(title, x=0.01, ha="left", fontsize=11, fontweight="bold")
    key = f"◆ full budget   dotted: {-compared.margin:g} point below it   bars: 95% intervals, paired with it"
    figure.supxlabel(f"Tokens a trace (mean), probes' included\n{key}", fontsize=9.5)
    figure.supylabel(worded("Accuracy", compared.reference), fontsize=9.5)


def _panel(axes: Any, entry: Entry, compared: Compared, tones: dict[str, str]) -> None:
    base, colour = compared.whole_baseline, tones[entry.rule]
    for other in compared.entries:
        if other is not entry:
            _line(axes, other, color="#d3d3d3", linewidth=1, zorder=1)
    axes.axhline(base.accuracy + compared.margin / 100, color=style.INK, linewidth=0.8, linestyle=":", zorder=2)
    x = np.array([point.net_tokens for point in entry.sweep])
    low, high = base.accuracy + np.array([point.ci95_diff_points for point in entry.sweep]).T / 100
    axes.vlines(x, low, high, color=colour, linewidth=1.6, alpha=0.3, zorder=2)
    _line(axes, entry, color=colour, linewidth=1.8, zorder=3)
    axes.plot(x, [point.accuracy for point in entry.sweep], "o", color=colour, markersize=2.8, zorder=4)
    axes.plot(base.net_tokens, base.accuracy, "D", color=style.INK, markersize=4.5, zorder=3)
    axes.set_title(entry.rule, color=colour, fontsize=10, pad=4)


def _line(axes: Any, entry: Entry, **options: Any) -> None:
    corners = _corners(entry)
    axes.plot([one.net_tokens for one in corners], [one.accuracy for one in corners], **options)


def _corners(entry: Entry) -> list[Point]:
    """The settings on the frontier, from cheap to expensive."""
    return sorted((one for one in entry.sweep if one.value in entry.frontier), key=lambda one: one.net_tokens)


def _accuracies(compared: Compared) -> tuple[float, float]:
    """The limits of the accuracy axis: down to the cheapest corner of any rule except the fixed budget."""
    base = compared.whole_baseline.accuracy
    others = [entry for entry in compared.entries if entry.rule != BASELINE_RULE and entry.frontier]
    found = [_corners(entry)[0].accuracy for entry in others]
    high = max([base, *(point.accuracy for entry in compared.entries for point in entry.sweep)])
    low = max(min([*found, high - LEAST]), base - DEPTH)
    return low - 0.08 * (high - low), high + 0.14 * (high - low)


def _savings(axes: Any, compared: Compared, tones: dict[str, str]) -> None:
    axes.axvline(0, color=style.BASELINE, linewidth=1)
    entries = compared.entries[::-1]
    for place, entry in enumerate(entries):
        colour, shown = tones[entry.rule], entry.shown
        axes.plot(shown.ci95_net_share, [place, place], color=colour, linewidth=2.6, alpha=0.4)
        marker, face = ("X" if entry.verdict == WORSE else "o"), (colour if entry.equal else "white")
        axes.plot(shown.net_share, place, marker, color=colour, markerfacecolor=face, markersize=6.5, markeredgewidth=1.5)
    values = ["" if entry.shown.value is None else f" {number(entry.shown.value)}" for entry in entries]
    names = [entry.rule + value for entry, value in zip(entries, values, strict=True)]
    axes.set_yticks(range(len(entries)), names, fontsize=9.5)
    for label, entry in zip(axes.get_yticklabels(), entries, strict=True):
        label.set_color(tones[entry.rule])
        label.set_fontweight("bold")
    axes.set_ylim(-0.6, len(entries) - 0.4)
    axes.grid(visible=False, axis="y")
    axes.xaxis.set_major_formatter(style.percent)
    axes.tick_params(axis="x", labelsize=8)
    where = "questions held out" if compared.split.apart else "the same questions"
    title = worded(f"Net tokens saved at the value chosen\nfor equal accuracy, on {where}", compared.reference)
    axes.set_title(title, x=0, ha="center", fontsize=11, pad=8)
    key = "filled: equal, hollow: cannot be told, cross: worse"
    axes.set_xlabel(f"with 95% intervals\n{key}", x=0, fontsize=9.5)
