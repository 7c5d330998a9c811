"""All figures of a report as PNG and SVG. A figure that makes no sense for a run is left out, with the reason."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from cgr.lab.decide.arrays import Decisions
from cgr.lab.decide.columns import Columns
from cgr.lab.decide.replay import Decide
from cgr.lab.output import style
from cgr.lab.report.figures import answers, certainty, models, tokens
from cgr.lab.report.result import Report
from cgr.lab.score import accuracy as scores
from cgr.lab.types import Ints


@dataclass(frozen=True, eq=False)
class FigureData:
    """What figures show: a run, its report, and the rule's decisions at any threshold."""

    columns: Columns
    report: Report
    decide: Decide

    @property
    def decided(self) -> Decisions:
        """The decisions at the shown threshold."""
        return self.decide(self.report.shown)

    @property
    def name(self) -> str:
        """The rule and the shown threshold, for labels."""
        return f"{self.report.rule} at {self.report.shown:g}"

    @property
    def steps(self) -> Ints:
        """Every multiple of the interval below the budget, and the budget."""
        return np.append(self.columns.steps, self.columns.limit)


@dataclass(frozen=True, slots=True)
class Condition:
    """What a figure needs: whether a run has it, and the sentence that is shown if not."""

    holds: Callable[[FigureData], Any]
    reason: str


@dataclass(frozen=True, slots=True)
class Plot:
    """One figure: its file name, its drawing function, whose docstring is the caption, and what it needs."""

    name: str
    draw: Callable[[Any], Any]
    needs: tuple[Condition, ...] = ()

    @property
    def caption(self) -> str:
        """The caption in one line."""
        return " ".join((self.draw.__doc__ or "").split())

    def why_not(self, data: FigureData) -> str:
        """The first reason against drawing it; empty if there is none."""
        return next((need.reason for need in self.needs if not need.holds(data)), "")

    def write(self, data: Any, folder: Path, why_not: str) -> style.SavedFigure:
        """Draw and save it, unless there is a reason why not."""
        return style.write(self.name, self.caption, partial(self.draw, data), folder, why_not)


def _answers_differ(data: FigureData) -> bool:
    return scores.accuracy(data.columns, data.decided.right) not in (0, 1)


def _finals_differ(data: FigureData) -> bool:
    return scores.accuracy(data.columns, data.columns.final_right) not in (0, 1)


NO_GOLD = "No question has a known answer."
GOLDS = Condition(lambda data: data.columns.graded.any(), NO_GOLD)
PROBES = Condition(lambda data: data.columns.present.any(), "No probe was recorded.")
CLOSED = Condition(lambda data: (data.columns.present & data.columns.closed).any(), "No probe has a closed answer.")
FIRED = Condition(lambda data: data.decided.fired, "At the shown threshold the rule never fired: nothing was saved.")
SEEDS = Condition(lambda data: len(data.columns.seeds) > 1, "There is only one seed: nothing to compare.")
QUESTIONS = Condition(lambda data: len(data.columns.questions) > 1, "There is only one question: nothing to rank.")
STEPS = Condition(lambda data: len(data.columns.steps), "The budget is not longer than one interval: there are no steps.")
PENALTIES = Condition(lambda data: data.report.grade, "No penalty was given.")
MIXED_ANSWERS = Condition(_answers_differ, "The answers of the rule are all right or all wrong.")
MIXED_FINALS = Condition(_finals_differ, "The final answers are all right or all wrong.")
PLOTS = (
    Plot("cumulative_predictions", answers.cumulative, (GOLDS,)),
    Plot("incorrect_to_correct", answers.ratio, (GOLDS, MIXED_ANSWERS)),
    Plot("certainty_histogram", certainty.histogram, (PROBES, CLOSED)),
    Plot("average_certainty", certainty.average, (PROBES, STEPS)),
    Plot("accuracy_by_seed", answers.by_seed, (GOLDS, SEEDS)),
    Plot("distance_from_baseline", answers.distance, (GOLDS, SEEDS, FIRED)),
    Plot("grade_over_budget", answers.grade, (GOLDS, STEPS, PENALTIES)),
    Plot("tokens_saved_by_seed", tokens.saved_by_seed, (FIRED, SEEDS)),
    Plot("tokens_saved_heat_map", tokens.heat_map, (FIRED,)),
    Plot("tokens_used", tokens.used),
    Plot("savings_by_question", tokens.by_question, (FIRED, QUESTIONS)),
    Plot("accuracy_against_tokens", tokens.trade_off, (GOLDS, PROBES)),
    Plot("reliability", certainty.reliability, (GOLDS,)),
    Plot("risk_coverage", certainty.risk, (GOLDS, MIXED_FINALS)),
)
MODEL_PLOTS = (Plot("models_trade_off", models.trade_off), Plot("models_differences", models.differences))


def write(data: FigureData, folder: Path, *more: style.SavedFigure) -> None:
    """Write every figure of one run, and the list of them. `more`: figures already written that the list includes."""
    style.write_list([*(plot.write(data, folder, plot.why_not(data)) for plot in PLOTS), *more], folder)


def write_models(reports: Sequence[Report], folder: Path) -> None:
    """Write the figures that compare several runs, and the list of them."""
    graded = [report for report in reports if report.size.graded_questions]
    style.write_list([plot.write(graded, folder, "" if graded else NO_GOLD) for plot in MODEL_PLOTS], folder)
