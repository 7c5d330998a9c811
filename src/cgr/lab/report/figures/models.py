"""Figures that compare several runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from cgr.lab.output import style
from cgr.lab.report.figures.tokens import accuracy_against_tokens
from cgr.lab.report.result import Report
from cgr.lab.report.tables import labels
from cgr.records import visible_line


def trade_off(reports: Sequence[Report]) -> Any:
    """Accuracy against tokens for each model. Diamonds: baselines."""
    figure, axes = style.paper()
    for report, name, colour in zip(reports, map(visible_line, labels(reports)), _colours(len(reports)), strict=True):
        rows = report.trade_off
        x = [row.thinking_tokens_mean + row.probe_tokens_mean for row in rows]
        y = [row.accuracy for row in rows]
        axes.plot(x, y, color=colour, marker="o", markersize=3.5, label=name)
        axes.plot(report.baseline.thinking_tokens_mean, report.baseline.accuracy, "D", color=colour, markersize=7)
    axes.plot([], [], "D", color=style.BASELINE, markersize=6, label="baseline")
    accuracy_against_tokens(figure, axes, "Tokens per trace (mean), with probe tokens", 0.1)
    axes.set_title("Accuracy against tokens by model")
    return figure


def differences(reports: Sequence[Report]) -> Any:
    """Change in accuracy at each threshold, with its interval."""
    levels = [row.threshold for row in reports[0].thresholds]
    figure, axes = style.paper(size=(7.2, 1.4 + 0.28 * len(levels) * len(reports)))
    axes.axvline(0, color=style.BASELINE, linewidth=1)
    places, names = [], []
    named = zip(reports, map(visible_line, labels(reports)), _colours(len(reports)), strict=True)
    for number, (report, name, colour) in enumerate(named):
        for place, row in enumerate(report.thresholds):
            y = -(number * (len(levels) + 1) + place)
            places.append(y)
            names.append(f"{row.threshold:g}")
            if row.ci95:
                axes.plot(
                    np.array(row.ci95) * report.size.points_per_question, [y, y], color=colour, linewidth=2.2, alpha=0.5
                )
            axes.plot(row.diff_points, y, "o", color=colour, markersize=6)
        top = -(number * (len(levels) + 1))
        style.beside_axis(axes, 1, top, name, (6, 0), color=colour, fontweight="bold", va="center", fontsize=9.5)
    axes.set_yticks(places, names, fontsize=8.5)
    axes.grid(visible=False, axis="y")
    axes.set(ylabel="Threshold", xlabel="Change in accuracy, in points, with its 95% interval")
    axes.set_title("Change in accuracy against each model's baseline")
    return figure


def _colours(count: int) -> list[str]:
    return [style.LINES[place % len(style.LINES)] for place in range(count)]
