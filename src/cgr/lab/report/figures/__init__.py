"""All figures of a report as PNG and SVG. A figure that makes no sense for a run is left out, with the reason."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cgr.lab.decide import replay as decisions
from cgr.lab.decide.arrays import Decisions
from cgr.lab.decide.columns import Columns
from cgr.lab.decide.replay import Decide
from cgr.lab.output import style
from cgr.lab.output.style import SavedFigure
from cgr.lab.report.figures import answers, certainty, models, tokens
from cgr.lab.report.result import Report
from cgr.lab.score import accuracy as scores
from cgr.lab.types import Bools, Ints


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
    """One figure: its file name, caption, drawing function, and what it needs."""

    name: str
    caption: str
    draw: Callable[[FigureData], Any]
    needs: tuple[Condition, ...]

    def why_not(self, data: FigureData) -> str:
        """The first reason against drawing it; empty if there is none."""
        return next((need.reason for need in self.needs if not need.holds(data)), "")


def _mixed(columns: Columns, right: Bools) -> bool:
    return scores.accuracy(columns, right) not in (0, 1)


GOLDS = Condition(lambda data: data.columns.graded.any(), "No question has a known answer.")
PROBES = Condition(lambda data: data.columns.present.any(), "No probe was recorded.")
FIRED = Condition(lambda data: data.decided.fired, "At the shown threshold the rule never fired: nothing was saved.")
SEEDS = Condition(lambda data: len(data.columns.seeds) > 1, "There is only one seed: nothing to compare.")
QUESTIONS = Condition(lambda data: len(data.columns.questions) > 1, "There is only one question: nothing to rank.")
STEPS = Condition(lambda data: len(data.columns.steps), "The budget is not longer than one interval: there are no steps.")
PENALTIES = Condition(lambda data: data.report.grade, "No penalty was given.")
MIXED_ANSWERS = Condition(
    lambda data: _mixed(data.columns, data.decided.right), "The answers of the rule are all right or all wrong."
)
MIXED_FINALS = Condition(
    lambda data: _mixed(data.columns, data.columns.final_right), "The final answers are all right or all wrong."
)
PLOTS = (
    Plot(
        "cumulative_predictions",
        "Correct and incorrect answers given by each step of the thinking budget; the rest is answered at the budget.",
        answers.cumulative,
        (GOLDS,),
    ),
    Plot(
        "incorrect_to_correct",
        "Incorrect answers for each correct one, among those given by each step.",
        answers.ratio,
        (GOLDS, MIXED_ANSWERS),
    ),
    Plot(
        "certainty_histogram",
        "Distribution of certainty over probes, by whether the answer was right: shows how polarised a model is.",
        certainty.histogram,
        (PROBES,),
    ),
    Plot(
        "average_certainty",
        "Mean certainty at each step: of the traces still thinking (band: SD over seeds; below: their number), and of all "
        "traces, with ended traces at their final certainty.",
        certainty.average,
        (PROBES, STEPS),
    ),
    Plot(
        "accuracy_by_seed",
        "Correct answers of each seed, baseline and rule.",
        answers.by_seed,
        (GOLDS, SEEDS),
    ),
    Plot(
        "distance_from_baseline",
        "Difference in correct answers between rule and baseline for each seed.",
        answers.distance,
        (GOLDS, SEEDS, FIRED),
    ),
    Plot(
        "grade_over_budget",
        "Grade with abstention at each step, for each penalty and threshold. Dots: maxima; dotted line: baseline.",
        answers.grade,
        (GOLDS, STEPS, PENALTIES),
    ),
    Plot(
        "tokens_saved_by_seed",
        "Thinking tokens used and saved for each seed.",
        tokens.saved_by_seed,
        (FIRED, SEEDS),
    ),
    Plot(
        "tokens_saved_heat_map",
        "Thinking tokens saved for each question and seed.",
        tokens.heat_map,
        (FIRED,),
    ),
    Plot(
        "tokens_used",
        "All tokens used: the full budget, the baseline, and the rule at each threshold with its probe tokens.",
        tokens.used,
        (),
    ),
    Plot(
        "savings_by_question",
        "Share of thinking tokens saved on each question: a ranking of difficulty.",
        tokens.by_question,
        (FIRED, QUESTIONS),
    ),
    Plot(
        "accuracy_against_tokens",
        "The trade-off: accuracy against tokens for every threshold, beside smaller fixed budgets.",
        tokens.trade_off,
        (GOLDS, PROBES),
    ),
    Plot(
        "reliability",
        "Share of right answers at each certainty; the size of a marker shows the share of answers in its bin.",
        certainty.reliability,
        (GOLDS,),
    ),
    Plot(
        "risk_coverage",
        "Share of wrong answers among the most certain answers.",
        certainty.risk,
        (GOLDS, MIXED_FINALS),
    ),
)
MODEL_PLOTS: tuple[tuple[str, str, Callable[[Sequence[Report]], Any]], ...] = (
    ("models_trade_off", "Accuracy against tokens for each model. Diamonds: baselines.", models.trade_off),
    ("models_differences", "Change in accuracy at each threshold, with its interval.", models.differences),
)


def write(
    columns: Columns, report: Report, folder: Path, *, decide: Decide | None = None, more: Sequence[SavedFigure] = ()
) -> tuple[SavedFigure, ...]:
    """Write every figure of one run, and the list of them. `more`: figures already written that the list includes."""
    data = FigureData(columns, report, decide or decisions.deciding(columns, report.rule))
    saved = (*(_save(plot.name, plot.caption, plot.draw, data, folder, plot.why_not(data)) for plot in PLOTS), *more)
    style.write_list(saved, folder)
    return saved


def write_models(reports: Sequence[Report], folder: Path) -> tuple[SavedFigure, ...]:
    """Write the figures that compare several runs, and the list of them."""
    graded = [report for report in reports if report.questions]
    why_not = "" if graded else "No question has a known answer."
    saved = tuple(_save(*plot, graded, folder, why_not) for plot in MODEL_PLOTS)
    style.write_list(saved, folder)
    return saved


def _save(name: str, caption: str, draw: Callable[[Any], Any], data: Any, folder: Path, why_not: str) -> SavedFigure:
    if why_not:
        style.remove(name, folder)
        return SavedFigure(name, caption, why_not=why_not)
    with style.styled():
        return SavedFigure(name, caption, style.save(draw(data), name, folder))
