"""A report as lines for a terminal of 80 columns: every threshold, or the few numbers of a headline."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cgr.lab.output.style import tokens
from cgr.lab.output.table import Cell, Head, Table, plural
from cgr.lab.report.result import GradeRow, Report, SavingsRow, ThresholdRow
from cgr.lab.types import Interval
from cgr.records import Record

HEADS = (
    Head("threshold", "θ", "g"),
    Head("correct", "Right", ".2f"),
    Head("accuracy", "Acc.", ".1f", 100, "%"),
    Head("diff", "Diff.", "+.2f"),
    Head("interval", "95% interval", "+.2f"),
    Head("seeds", "=/+/−"),
    Head("saved", "Saved"),
    Head("share", "Share", ".1f", 100, "%"),
    Head("net", "Net", ".1f", 100, "%"),
)
HEADLINE_PENALTY = 1.0
MAIN_FIGURES = ("accuracy_against_tokens", "cumulative_predictions", "tokens_used")  # best first; the last always exists


def lines(report: Report) -> list[str]:
    """A title, a table with the baseline and every threshold, and the notes."""
    size, base = report.size, report.baseline
    title = f"{report.run.name}: {report.run.model}, {plural(size.questions, 'question')} × {plural(size.seeds, 'seed')}"
    first: tuple[Cell, ...] = ("baseline", base.correct_mean, base.accuracy, *[""] * 6)
    rows = (first, *(_row(*pair) for pair in zip(report.thresholds, report.savings, strict=True)))
    return [title, *Table("", "", HEADS, rows).lines(left=0), *(f"Note: {note}" for note in report.notes)]


def _row(row: ThresholdRow, saved: SavingsRow) -> tuple[Cell, ...]:
    seeds = None if row.equal is None else f"{row.equal}/{row.better}/{row.worse}"
    scores = (row.threshold, row.correct_mean, row.accuracy, row.diff_mean, row.ci95, seeds)
    return *scores, tokens(saved.total), saved.share, saved.net_share


@dataclass(frozen=True, slots=True)
class Headline(Record):
    """The baseline (`threshold` None), or the rule at one threshold. The difference and its interval are in percentage
    points. Grade counts questions at `penalty`: the baseline answers everything, the rule only what it is sure of."""

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


def headlines(report: Report) -> tuple[Headline, ...]:
    """The baseline, then each threshold."""
    penalties = {row.penalty for row in report.grade}
    penalty = HEADLINE_PENALTY if HEADLINE_PENALTY in penalties else max(penalties, default=None)
    grades = {row.threshold: row for row in report.grade if row.penalty == penalty}
    grade = next((row.baseline for row in grades.values()), None)
    base = Headline(None, report.baseline.accuracy, grade=grade, penalty=penalty)
    return base, *(_headline(report, row, grades.get(row.threshold)) for row in report.thresholds)


def _headline(report: Report, row: ThresholdRow, grade: GradeRow | None) -> Headline:
    saved = report.saved(row.threshold)
    points = 100 / report.questions if report.questions else 0
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
    )


def headline_lines(rows: tuple[Headline, ...]) -> list[str]:
    """The headlines as a table."""
    penalty = rows[0].penalty
    heads = (
        Head("name", ""),
        Head("accuracy", "Accuracy", ".1f", 100, "%"),
        Head("diff", "Diff.", "+.1f"),
        Head("interval", "95% interval", "+.1f"),
        Head("saved", "Saved", ".1f", 100, "%"),
        Head("net", "Net", ".1f", 100, "%"),
        Head("grade", "Grade" if penalty is None else f"Grade p={penalty:g}", ".2f"),
    )
    return Table("", "", heads, tuple(map(_headline_cells, rows))).lines()


def _headline_cells(row: Headline) -> tuple[Cell, ...]:
    if row.threshold is None:
        return "baseline", row.accuracy, "", "", "", "", row.grade
    name = f"CGR {row.threshold:g}"
    return name, row.accuracy, row.diff_points, row.ci95_points, row.saved_share, row.net_share, row.grade


def main_figure(report_folder: Path) -> Path | None:
    """The figure to look at first, if any was written."""
    paths = (report_folder / "figures" / f"{name}.png" for name in MAIN_FIGURES)
    return next((path for path in paths if path.is_file()), None)
