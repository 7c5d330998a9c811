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
class Plot:
    """One figure: its file name, caption, drawing function, and checks that give a reason to leave it out."""

    name: str
    caption: str
    draw: Callable[[FigureData], Any]
    checks: tuple[Callable[[FigureData], str], ...]

    def why_not(self, data: FigureData) -> str:
        """The first reason against drawing it; empty if there is none."""
        return next((reason for check in self.checks if (reason := check(data))), "")


# Checks: each returns an empty string, or why a figure is left out.


def has_golds(data: FigureData) -> str:
    """Some question has a known answer."""
    return "" if data.columns.graded.any() else "No question has a known answer."


def has_probes(data: FigureData) -> str:
    """Some probe was recorded."""
    return "" if data.columns.present.any() else "No probe was recorded."


def has_fired(data: FigureData) -> str:
    """The rule stopped some trace at the shown threshold."""
    return "" if data.decided.fired else f"At a threshold of {data.report.shown:g} the rule never fired: nothing was saved."


def has_seeds(data: FigureData) -> str:
    """There are at least two seeds."""
    return "" if len(data.columns.seeds) > 1 else "There is only one seed: nothing to compare."


def has_questions(data: FigureData) -> str:
    """There are at least two questions."""
    return "" if len(data.columns.questions) > 1 else "There is only one question: nothing to rank."


def has_steps(data: FigureData) -> str:
    """The budget is longer than one interval."""
    return "" if len(data.columns.steps) else "The budget is not longer than one interval: there are no steps."


def has_penalties(data: FigureData) -> str:
    """Grade was computed for some penalty."""
    return "" if data.report.grade else "No penalty was given."


def has_right_and_wrong(data: FigureData) -> str:
    """The rule's answers are neither all right nor all wrong."""
    return _mixed(scores.accuracy(data.columns, data.decided.right), "answer")


def has_final_errors(data: FigureData) -> str:
    """The final answers are neither all right nor all wrong."""
    return _mixed(scores.accuracy(data.columns, data.columns.final_right), "final answer")


def _mixed(accuracy: float | None, what: str) -> str:
    if accuracy not in (0, 1):
        return ""
    return f"Every {what} is {'right' if accuracy else 'wrong'}: there is nothing to compare."


PLOTS = (
    Plot(
        "cumulative_predictions",
        "Correct and incorrect answers given by each step of the thinking budget; the rest is answered at the budget.",
        answers.cumulative,
        (has_golds,),
    ),
    Plot(
        "incorrect_to_correct",
        "Incorrect answers for each correct one, among those given by each step.",
        answers.ratio,
        (has_golds, has_right_and_wrong),
    ),
    Plot(
        "certainty_histogram",
        "Distribution of certainty over probes, by whether the answer was right: shows how polarised a model is.",
        certainty.histogram,
        (has_probes,),
    ),
    Plot(
        "average_certainty",
        "Mean certainty at each step: of the traces still thinking (band: SD over seeds; below: their number), and of all "
        "traces, with ended traces at their final certainty.",
        certainty.average,
        (has_probes, has_steps),
    ),
    Plot(
        "accuracy_by_seed",
        "Correct answers of each seed, baseline and rule.",
        answers.by_seed,
        (has_golds, has_seeds),
    ),
    Plot(
        "distance_from_baseline",
        "Difference in correct answers between rule and baseline for each seed.",
        answers.distance,
        (has_golds, has_seeds, has_fired),
    ),
    Plot(
        "grade_over_budget",
        "Grade with abstention at each step, for each penalty and threshold. Dots: maxima; dotted line: baseline.",
        answers.grade,
        (has_golds, has_steps, has_penalties),
    ),
    Plot(
        "tokens_saved_by_seed",
        "Thinking tokens used and saved for each seed.",
        tokens.saved_by_seed,
        (has_fired, has_seeds),
    ),
    Plot(
        "tokens_saved_heat_map",
        "Thinking tokens saved for each question and seed.",
        tokens.heat_map,
        (has_fired,),
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
        (has_fired, has_questions),
    ),
    Plot(
        "accuracy_against_tokens",
        "The trade-off: accuracy against tokens for every threshold, beside smaller fixed budgets.",
        tokens.trade_off,
        (has_golds, has_probes),
    ),
    Plot(
        "reliability",
        "Share of right answers at each certainty; the size of a marker shows the share of answers in its bin.",
        certainty.reliability,
        (has_golds,),
    ),
    Plot(
        "risk_coverage",
        "Share of wrong answers among the most certain answers.",
        certainty.risk,
        (has_golds, has_final_errors),
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
