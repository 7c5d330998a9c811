"""The figure of the model card: three panels from the same run."""

from __future__ import annotations

from pathlib import Path

import matplotlib
import numpy as np
from numpy.typing import NDArray

from cgr.lab.decide.arrays import at_budget
from cgr.lab.decide.columns import Columns
from cgr.lab.score.calibration import Selective

matplotlib.use("Agg")
import matplotlib.pyplot as plt

BLUE, ORANGE, GREY = "#0072B2", "#D55E00", "#999999"


def draw(columns: Columns, probes: Selective, path: Path) -> None:
    """Write the figure to this path."""
    figure, panels = plt.subplots(1, 3, figsize=(13, 4), layout="constrained")
    _over_budget(panels[0], columns)
    _reliability(panels[1], probes)
    _needed_tokens(panels[2], columns)
    for panel in panels:
        panel.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _over_budget(panel: plt.Axes, columns: Columns) -> None:
    steps = columns.steps
    decided = [at_budget(columns, int(step)) for step in steps]
    panel.plot(steps, [d.right.mean() for d in decided], color=BLUE)
    panel.plot(steps, [d.certainty.mean() for d in decided], color=ORANGE)
    lines = (("accuracy", BLUE, decided[-1].right.mean(), -8), ("mean certainty", ORANGE, decided[-1].certainty.mean(), 4))
    for text, color, height, shift in lines:  # one label above its line, one below
        panel.annotate(text, (steps[-1], height), xytext=(0, shift), textcoords="offset points", color=color, ha="right",
                       va="bottom" if shift > 0 else "top")  # fmt: skip
    panel.set(title="With a smaller budget", xlabel="thinking tokens", ylim=(0, 1))


def _reliability(panel: plt.Axes, probes: Selective) -> None:
    bins = [part for part in probes.reliability if part.count]
    panel.plot([0, 1], [0, 1], color=GREY, linewidth=1, linestyle="--")
    panel.plot([b.certainty for b in bins], [b.accuracy for b in bins], color=BLUE, marker="o")
    panel.set(title="Calibration of certainty", xlabel="certainty", ylabel="correct", xlim=(0, 1), ylim=(0, 1))


def _needed_tokens(panel: plt.Axes, columns: Columns) -> None:
    solved = columns.final_right
    first = correct_from(columns)
    panel.scatter(first[solved], columns.natural[solved], s=12, color=BLUE, alpha=0.5, linewidths=0)
    top = columns.limit
    panel.plot([0, top], [0, top], color=GREY, linewidth=1, linestyle="--")
    panel.set(title="Tokens needed and tokens used", xlabel="all answers correct after", ylabel="thinking ended after")


def correct_from(columns: Columns) -> NDArray[np.int64]:
    """For each trace the position of the first probe from which on every probe is correct; the end if there is none."""
    right = np.where(columns.present, columns.right, True)
    all_correct = np.logical_and.accumulate(right[:, ::-1], axis=1)[:, ::-1] & columns.present
    first = columns.at[np.arange(len(columns)), all_correct.argmax(axis=1)]
    return np.where(all_correct.any(axis=1), first, columns.natural)
