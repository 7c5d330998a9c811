"""Every figure of the paper and some more, as PNG and SVG. What would be nonsense on a run is left out, and why is said."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cgr.lab.decide import replay as decisions
from cgr.lab.decide.columns import Columns
from cgr.lab.decide.replay import Decide
from cgr.lab.output import style
from cgr.lab.report.figures import answers, certainty, models, seeds, tokens, view
from cgr.lab.report.figures.view import Plot, View
from cgr.lab.report.result import Report

FORMATS = ("png", "svg")
LIST = "figures.md"

PLOTS = (
    Plot(
        "cumulative_predictions",
        "Correct and incorrect answers given by each step of the thinking budget; what is left lands at the budget.",
        answers.cumulative,
        (view.golds,),
    ),
    Plot(
        "incorrect_to_correct",
        "Incorrect answers for each correct one, among those given by each step.",
        answers.ratio,
        (view.golds, view.errors),
    ),
    Plot(
        "certainty_histogram",
        "How certainty is distributed over probes, by whether the answer was right: shows how polarised a model is.",
        certainty.histogram,
        (view.probes,),
    ),
    Plot(
        "average_certainty",
        "Mean certainty at each step: of the traces still thinking (with their middle half and number), and with those "
        "that ended carried forward.",
        certainty.average,
        (view.probes, view.steps),
    ),
    Plot(
        "accuracy_by_seed",
        "Correct answers of each seed, baseline and rule.",
        seeds.accuracy,
        (view.golds, view.seeds),
    ),
    Plot(
        "distance_from_baseline",
        "How many more or fewer correct answers each seed has with the rule.",
        seeds.distance,
        (view.golds, view.seeds, view.fired),
    ),
    Plot(
        "grade_over_budget",
        "Grade with abstention at each step, for each penalty and threshold; dots are the largest, dotted is the baseline.",
        answers.grade,
        (view.golds, view.steps, view.penalties),
    ),
    Plot(
        "tokens_saved_by_seed",
        "Thinking tokens that each seed used and was spared.",
        tokens.saved_by_seed,
        (view.fired, view.seeds),
    ),
    Plot(
        "tokens_saved_heat_map",
        "Thinking tokens saved on each question under each seed.",
        tokens.heat_map,
        (view.fired,),
    ),
    Plot(
        "tokens_used",
        "All tokens used: the full budget, the baseline, and the rule at each threshold with its probes' tokens.",
        tokens.used,
        (),
    ),
    Plot(
        "savings_by_question",
        "The share of its tokens that each question was spared, as a ranking of difficulty.",
        tokens.by_question,
        (view.fired, view.questions),
    ),
    Plot(
        "accuracy_against_tokens",
        "The trade-off: accuracy against tokens for every threshold, beside smaller fixed budgets.",
        tokens.trade_off,
        (view.golds, view.probes),
    ),
    Plot(
        "reliability",
        "How often answers of each certainty are right; the size of a marker is its bin's share.",
        certainty.reliability,
        (view.golds,),
    ),
    Plot(
        "risk_coverage",
        "The share of wrong answers among the most certain ones.",
        certainty.risk,
        (view.golds, view.both),
    ),
)


@dataclass(frozen=True, slots=True)
class Drawn:
    """One figure: where it is, or why it is not."""

    name: str
    caption: str
    files: tuple[Path, ...] = ()
    why_not: str = ""


def write(
    columns: Columns, report: Report, folder: Path, *, decide: Decide | None = None, more: Sequence[Drawn] = ()
) -> tuple[Drawn, ...]:
    """Every figure of one run, and a list of them with captions; `more` are there already."""
    scene = View(columns, report, decide or decisions.deciding(columns, report.rule))
    drawn = (*(_draw(plot, scene, folder) for plot in PLOTS), *more)
    write_list(drawn, folder)
    return drawn


def write_models(reports: Sequence[Report], folder: Path) -> tuple[Drawn, ...]:
    """The figures that set several runs side by side."""
    figures: tuple[tuple[str, str, Callable[[Sequence[Report]], Any]], ...] = (
        ("models_trade_off", "Accuracy against tokens, model by model; a diamond is a baseline.", models.trade_off),
        ("models_differences", "The change in accuracy at each threshold, with its interval.", models.differences),
    )
    graded = [report for report in reports if report.questions]
    drawn = []
    for name, caption, draw in figures:
        if graded:
            with style.styled():
                drawn.append(Drawn(name, caption, save(draw(graded), name, folder)))
        else:
            drawn.append(Drawn(name, caption, why_not="No question has a known answer."))
    write_list(tuple(drawn), folder)
    return tuple(drawn)


def _draw(plot: Plot, scene: View, folder: Path) -> Drawn:
    if why := plot.why_not(scene):
        forget(plot.name, folder)
        return Drawn(plot.name, plot.caption, why_not=why)
    with style.styled():
        return Drawn(plot.name, plot.caption, save(plot.draw(scene), plot.name, folder))


def forget(name: str, folder: Path) -> None:
    """An older report may have had it."""
    for ending in FORMATS:
        (folder / f"{name}.{ending}").unlink(missing_ok=True)


def save(figure: Any, name: str, folder: Path) -> tuple[Path, ...]:
    """The same bytes for the same figure: no date is written into the files."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = tuple(folder / f"{name}.{ending}" for ending in FORMATS)
    for path, metadata in zip(paths, ({"Software": None}, {"Date": None, "Creator": None}), strict=True):
        figure.savefig(path, metadata=metadata)
        figure.set_layout_engine("none")  # everything has its place now: no need to find it twice
    return paths


def write_list(drawn: Sequence[Drawn], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    lines = [f"- `{one.name}`: {one.caption}" + (f" **Left out: {one.why_not}**" * bool(one.why_not)) for one in drawn]
    (folder / LIST).write_text("\n".join(("# Figures", "", *lines, "")), encoding="utf-8")
