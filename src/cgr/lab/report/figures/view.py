"""What a figure looks at, and what it cannot do without."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from cgr.lab.decide.arrays import Decisions
from cgr.lab.decide.columns import Columns
from cgr.lab.decide.replay import Decide
from cgr.lab.report.result import Report
from cgr.lab.score import accuracy as scores
from cgr.lab.types import Ints

Need = Callable[["View"], str]
Draw = Callable[["View"], Any]


@dataclass(frozen=True, eq=False)
class View:
    """A run, its report, and what the rule comes to at any threshold."""

    columns: Columns
    report: Report
    decide: Decide

    @property
    def shown(self) -> Decisions:
        return self.decide(self.report.shown)

    @property
    def name(self) -> str:
        """The rule and its threshold, as labels say it."""
        return f"{self.report.rule} at {self.report.shown:g}"

    @property
    def steps(self) -> Ints:
        """Every interval, and the budget itself."""
        return np.append(self.columns.steps, self.columns.limit)


@dataclass(frozen=True, slots=True)
class Plot:
    """A figure by name: what it shows, how it is drawn, and the first reason not to."""

    name: str
    caption: str
    draw: Draw
    needs: tuple[Need, ...]

    def why_not(self, view: View) -> str:
        """Empty if it can be drawn."""
        return next((reason for need in self.needs if (reason := need(view))), "")


def golds(view: View) -> str:
    return "" if view.columns.graded.any() else "No question has a known answer."


def probes(view: View) -> str:
    return "" if view.columns.present.any() else "No probe was recorded."


def fired(view: View) -> str:
    return "" if view.shown.fired else f"At a threshold of {view.report.shown:g} the rule never fired: nothing was saved."


def seeds(view: View) -> str:
    return "" if len(view.columns.seeds) > 1 else "There is one seed: nothing to set side by side."


def questions(view: View) -> str:
    return "" if len(view.columns.questions) > 1 else "There is one question: nothing to rank."


def steps(view: View) -> str:
    return "" if len(view.columns.steps) else "The budget is no longer than one interval: there are no steps."


def penalties(view: View) -> str:
    return "" if view.report.grade else "No penalty was asked for."


def errors(view: View) -> str:
    """Right and wrong ones among the rule's answers: else there is no ratio between them."""
    right = view.shown.right[view.columns.graded]
    if right.all():
        return "Every answer is right: there is no error to show."
    return "" if right.any() else "No answer is right: there is nothing to hold the errors against."


def both(view: View) -> str:
    """Right and wrong ones among the final answers: else certainty has nothing to tell apart."""
    accuracy = scores.accuracy(view.columns, view.columns.final_right)
    return (
        ""
        if accuracy not in (0, 1)
        else f"Every final answer is {'right' if accuracy else 'wrong'}: nothing to tell apart."
    )
