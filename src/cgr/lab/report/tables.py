"""The tables of a report (those of the paper and some more), and its lines for a terminal of 80 columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from cgr.lab.output import Cell, Head, Table, plural, with_interval, write_table
from cgr.lab.output.style import tokens
from cgr.lab.report import prospects, raw
from cgr.lab.report.numbers import at
from cgr.lab.report.result import GradeRow, Report, SavingsRow, ThresholdRow
from cgr.lab.store.config import DEFAULT, IMPORTED
from cgr.lab.types import Interval
from cgr.records import Record

HEADLINE_PENALTY = 1.0
MAIN_FIGURES = ("accuracy_against_tokens", "cumulative_predictions", "tokens_used")  # best first; the last always exists
THRESHOLD = Head("threshold", "θ", "g")
ACCURACY = Head("correct_mean", "Acc.", ".2f")
RELATIVE = Head("accuracy", "Rel. Acc.", ".2f", 100, "%")


def baseline(report: Report) -> Table:
    """Accuracy and its spread over seeds: the baseline, then the rule at each threshold."""
    heads = (
        Head("policy", "Policy"),
        THRESHOLD,
        Head("correct_mean", f"Accuracy (out of {report.size.graded_questions})", ".2f"),
        Head("accuracy", "Accuracy (%)", ".2f", 100),
        Head("sd", "SD over seeds (points)", ".2f", 100),
        Head("low", "Lowest seed (%)", ".2f", 100),
        Head("high", "Highest seed (%)", ".2f", 100),
    )
    base = report.baseline
    rows: list[tuple[Cell, ...]] = [("baseline", None, base.correct_mean, base.accuracy)]
    rows += [(report.rule, row.threshold, row.correct_mean, row.accuracy) for row in report.thresholds]
    spreads = [(one.sd, one.low, one.high) for one in report.spread]
    cells = tuple((*row, *spread) for row, spread in zip(rows, spreads, strict=True))
    return Table("baseline", f"Baseline at {report.run.budget:,} thinking tokens, and {report.rule}", heads, cells)


def thresholds(report: Report) -> Table:
    """Accuracy of the rule at each threshold, against the baseline."""
    heads = (
        THRESHOLD,
        ACCURACY,
        RELATIVE,
        Head("diff_mean", "Diff.", "+.2f"),
        Head("ci95", "95% interval", "+.2f"),
        Head("diff_points", "Rel. Diff. (points)", "+.2f"),
        Head("diff_relative", "Rel. Diff. (ratio)", "+.2f", 100, "%"),
        Head("equal", "Equal", "d"),
        Head("better", "Better", "d"),
        Head("worse", "Worse", "d"),
        Head("ci95_seeds", "95% interval over seeds", "+.2f"),
        Head("fired", "Stopped early", ",d"),
    )
    caption = f"{report.rule} across thresholds, over {_seeds(report)}"
    return Table.of_records("thresholds", caption, heads, report.thresholds)


def grade(report: Report) -> Table:
    """Grade at each threshold and penalty."""
    last = f"{report.steps[-1]:,}" if report.steps else "no step"
    heads = (
        THRESHOLD,
        Head("penalty", "p", ".2f"),
        Head("final", "Final Grade", ".2f"),
        Head("baseline", "Baseline", ".2f"),
        Head("diff", "Diff.", "+.2f"),
        Head("diff_points", "Rel. Diff. (points)", "+.2f"),
        Head("max", "Max Grade", ".2f"),
        Head("step", "Step", ",d"),
        Head("at_budget", "At the budget", ".2f"),
        Head("answering", "Without abstention", ".2f"),
    )
    caption = f"Grade at {last} tokens and at its best step, over {_seeds(report)}"
    return Table.of_records("grade", caption, heads, report.grade)


def savings(report: Report) -> Table:
    """Thinking tokens saved at each threshold."""
    heads = (
        THRESHOLD,
        Head("total", "Total saved", ",d"),
        Head("per_seed", "Avg. per seed", ",.0f"),
        Head("per_question", "Avg. per question", ",.0f"),
        *with_interval("share", "Share", ".1f", 100, "%"),
        Head("probe_tokens", "Probe tokens", ",d"),
        Head("net_total", "Net", ",d"),
        Head("net_share", "Net share", ".1f", 100, "%"),
        Head("against_budget_total", "Against the budget", ",d"),
        Head("suffix_tokens", "Suffix tokens prefilled", ",d"),
        Head("disagreement", "Answers changed", ".1f", 100, "%"),
    )
    caption = f"Thinking tokens saved across thresholds, over {_seeds(report)}"
    return Table.of_records("savings", caption, heads, report.savings)


def budget_sweep(report: Report) -> Table:
    """The baseline at every budget on the grid."""
    heads = (
        Head("budget", "Budget", ",d"),
        ACCURACY,
        RELATIVE,
        Head("sd", "SD over seeds", ".2f", 100),
        Head("thinking_tokens_mean", "Thinking tokens (mean)", ",.0f"),
        Head("ended_by_themselves", "Natural ends", ".1f", 100, "%"),
    )
    return Table.of_records("budget_sweep", "The baseline under smaller budgets", heads, report.budget_sweep)


def selective(report: Report) -> Table:
    """AURC, ECE and AUROC of certainty."""
    heads = (
        Head("among", "Among"),
        THRESHOLD,
        Head("count", "Answers", ",d"),
        RELATIVE,
        Head("aurc", "AURC", ".4f"),
        Head("e_aurc", "E-AURC", ".4f"),
        Head("ece", "ECE", ".4f"),
        Head("auroc", "AUROC", ".4f"),
    )
    rows = [(row, row.selective) for row in report.selective]
    return Table.of_records("selective", "How well certainty separates right from wrong", heads, rows)


def models(reports: Sequence[Report]) -> Table:
    """The paper's Table 1 (baseline of each model), with the rule at the shown threshold beside it."""
    heads = (
        Head("model", "Model"),
        Head("questions", "Questions", "d"),
        Head("seeds", "Seeds", "d"),
        Head("correct_mean", "Accuracy", ".2f"),
        Head("accuracy", "Accuracy (%)", ".2f", 100),
        Head("sd", "SD (points)", ".2f", 100),
        THRESHOLD,
        Head("rule_correct_mean", "With rule", ".2f"),
        Head("diff_mean", "Diff.", "+.2f"),
        Head("ci95", "95% interval", "+.2f"),
        Head("rule_sd", "SD with rule", ".2f", 100),
        Head("share", "Tokens saved", ".1f", 100, "%"),
        Head("net_share", "Net", ".1f", 100, "%"),
    )
    rows = tuple(_model_row(name, report) for name, report in zip(labels(reports), reports, strict=True))
    return Table("models", "Baseline performance, and the rule beside it", heads, rows)


def labels(reports: Sequence[Report]) -> tuple[str, ...]:
    """A name for each of several runs: its model, or the run's name where two runs have the same model."""
    models = [report.run.model for report in reports]
    return tuple(
        report.run.model if models.count(report.run.model) == 1 and report.run.model != IMPORTED else report.run.name
        for report in reports
    )


def _model_row(name: str, report: Report) -> tuple[Cell, ...]:
    base, row, saved = report.baseline, at(report.thresholds, report.shown), at(report.savings, report.shown)
    spread = {one.threshold: one.sd for one in report.spread}
    before = (report.size.graded_questions, report.size.seeds, base.correct_mean, base.accuracy, spread[None])
    after = (row.correct_mean, row.diff_mean, row.ci95, spread[report.shown], saved.share, saved.net_share)
    return name, *before, report.shown, *after


def _seeds(report: Report) -> str:
    return plural(report.size.seeds, "seed")


OWN = (baseline, thresholds, grade, savings, budget_sweep, selective)
TABLES: tuple[Callable[[Report], Table], ...] = (*OWN, prospects.adaptive, prospects.false_sure)


def write(report: Report, folder: Path) -> tuple[Path, ...]:
    """Write every table of one run, three files each; the paths."""
    return tuple(
        path for make in (*TABLES, *([raw.table] if report.raw else [])) for path in write_table(make(report), folder)
    )


LINES = (
    Head("threshold", "θ", "g"),
    Head("correct", "Right", ".2f"),
    Head("accuracy", "Acc.", ".1f", 100, "%"),
    *with_interval("diff", "Diff.", "+.2f"),
    Head("seeds", "=/+/−"),
    Head("saved", "Saved"),
    Head("share", "Share", ".1f", 100, "%"),
    Head("net", "Net", ".1f", 100, "%"),
)


def lines(report: Report) -> list[str]:
    """A title, how the run was made, a table with the baseline and every threshold, and the notes."""
    size, base = report.size, report.baseline
    title = f"{report.run.name}: {report.run.model}, {plural(size.questions, 'question')} × {plural(size.seeds, 'seed')}"
    first: tuple[Cell, ...] = ("baseline", base.correct_mean, base.accuracy, *[""] * 6)
    rows = (first, *(_row(*pair) for pair in zip(report.thresholds, report.savings, strict=True)))
    table = Table("", "", LINES, rows).lines(left=0) if size.graded_questions else prospects.without_golds(report)
    table += raw.lines(report) if report.raw else []
    return [title, origin(report), *table, *prospects.lines(report), *(f"Note: {note}" for note in report.notes)]


def origin(report: Report) -> str:
    """How the run was made, as a phrase. An import may not say it: that is unknown."""
    run = report.run
    probed = f"probed every {run.interval:,} tokens" if run.interval else "probed at irregular positions"
    temperature = f"temperature {'unknown' if run.temperature is None else format(run.temperature, 'g')}"
    unknown, sets = ["prefix unknown"] * (run.prefix is None), [one for one in report.probe_sets if one != DEFAULT]
    parts = [f"budget {run.budget:,}", probed if report.size.probes else "no probes", temperature, *unknown]
    return ", ".join([*parts, *(f"{report.rule} reads {one!r}" for one in sets)])


def _row(row: ThresholdRow, saved: SavingsRow) -> tuple[Cell, ...]:
    seeds = None if row.equal is None else f"{row.equal}/{row.better}/{row.worse}"
    scores = (row.threshold, row.correct_mean, row.accuracy, row.diff_mean, row.ci95, seeds)
    return *scores, tokens(saved.total), saved.share, saved.net_share


@dataclass(frozen=True, slots=True)
class Headline(Record):
    """The baseline (`threshold` None), or the rule at one threshold. The difference and its interval are in percentage
    points. Grade counts questions at `penalty`: the baseline answers everything, the rule only what it is sure of.
    `fixed_accuracy`: what a fixed budget of the same cost gets."""

    threshold: float | None
    accuracy: float | None
    diff_points: float | None = None
    ci95_points: Interval | None = None
    saved_tokens: int | None = None
    saved_share: float | None = None
    net_tokens: int | None = None
    net_share: float | None = None
    grade: float | None = None
    penalty: float | None = None
    fixed_accuracy: float | None = None


def headlines(report: Report) -> tuple[Headline, ...]:
    """The baseline, then each threshold."""
    penalties = {row.penalty for row in report.grade}
    penalty = HEADLINE_PENALTY if HEADLINE_PENALTY in penalties else max(penalties, default=None)
    grades = {row.threshold: row for row in report.grade if row.penalty == penalty}
    grade = next((row.baseline for row in grades.values()), None)
    base = Headline(None, report.baseline.accuracy, grade=grade, penalty=penalty)
    return base, *(_headline(report, row, grades.get(row.threshold)) for row in report.thresholds)


def _headline(report: Report, row: ThresholdRow, grade: GradeRow | None) -> Headline:
    saved = at(report.savings, row.threshold)
    points = report.size.points_per_question
    return Headline(
        threshold=row.threshold,
        accuracy=row.accuracy,
        diff_points=row.diff_points,
        ci95_points=(row.ci95[0] * points, row.ci95[1] * points) if row.ci95 else None,
        saved_tokens=saved.total,
        saved_share=saved.share,
        net_tokens=saved.net_total,
        net_share=saved.net_share,
        grade=grade.final if grade else None,
        penalty=grade.penalty if grade else None,
        fixed_accuracy=next((one.fixed_accuracy for one in report.adaptive if one.threshold == row.threshold), None),
    )


def headline_lines(rows: tuple[Headline, ...]) -> list[str]:
    """The headlines as a table."""
    penalty = rows[0].penalty
    heads = (
        Head("name", ""),
        Head("accuracy", "Accuracy", ".1f", 100, "%"),
        Head("fixed", "Fixed budget", ".1f", 100, "%"),
        *with_interval("diff", "Diff.", "+.1f"),
        Head("saved", "Saved", ".1f", 100, "%"),
        Head("net", "Net", ".1f", 100, "%"),
        Head("grade", "Grade" if penalty is None else f"Grade p={penalty:g}", ".2f"),
    )
    return Table("", "", heads, tuple(map(_headline_cells, rows))).lines()


def _headline_cells(row: Headline) -> tuple[Cell, ...]:
    if row.threshold is None:
        return "baseline", row.accuracy, "", "", "", "", "", row.grade
    compared = (row.accuracy, row.fixed_accuracy, row.diff_points, row.ci95_points)
    return f"CGR {row.threshold:g}", *compared, row.saved_share, row.net_share, row.grade


def main_figure(report_folder: Path) -> Path | None:
    """The figure to look at first, if any was written."""
    paths = (report_folder / "figures" / f"{name}.png" for name in MAIN_FIGURES)
    return next((path for path in paths if path.is_file()), None)
