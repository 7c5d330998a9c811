"""An experiment in a few lines: how right, how much cheaper, and what that is worth where mistakes cost."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cgr.lab.output.table import Cell, Head
from cgr.lab.report.result import GradeRow, Report
from cgr.lab.types import Interval
from cgr.records import Record

PENALTY = 1.0
PICTURES = ("accuracy_against_tokens", "cumulative_predictions", "tokens_used")  # the best that there is; the last always
GAP = "  "


@dataclass(frozen=True, slots=True)
class Headline(Record):
    """The baseline (`threshold` None), or CGR at one threshold. Differences and their interval are in percentage points;
    Grade is in questions, at `penalty`: the baseline answers everything, CGR what it is sure of."""

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
    """The baseline first, then each threshold."""
    grades = {row.threshold: row for row in report.grade if row.penalty == _penalty(report)}
    first = next(iter(grades.values()), None)
    base = Headline(
        None, report.baseline.accuracy, grade=first.baseline if first else None, penalty=first.penalty if first else None
    )
    return base, *(_at(report, row.threshold, grades.get(row.threshold)) for row in report.thresholds)


def _penalty(report: Report) -> float | None:
    """1 if it was asked for, else the largest that was."""
    asked = {row.penalty for row in report.grade}
    return PENALTY if PENALTY in asked else max(asked, default=None)


def _at(report: Report, threshold: float, grade: GradeRow | None) -> Headline:
    row, saved = report.at(threshold), report.saved(threshold)
    point = 100 / report.questions if report.questions else 0
    return Headline(
        threshold=threshold,
        accuracy=row.accuracy,
        diff_points=row.diff_points,
        ci95_points=(row.ci95[0] * point, row.ci95[1] * point) if row.ci95 else None,
        saved_tokens=saved.total,
        saved_share=saved.share,
        net_tokens=saved.net_total,
        net_share=saved.net_share,
        grade=grade.final if grade else None,
        penalty=grade.penalty if grade else None,
    )


def in_lines(rows: tuple[Headline, ...]) -> list[str]:
    """A table for a terminal of eighty columns."""
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
    texts = [[head.label for head in heads]]
    texts += [[head.text(cell) for head, cell in zip(heads, _cells(row), strict=True)] for row in rows]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    return [_line(line, widths) for line in texts]


def _cells(row: Headline) -> tuple[Cell, ...]:
    if row.threshold is None:
        return "baseline", row.accuracy, "", "", "", "", row.grade
    named = f"CGR {row.threshold:g}"
    return named, row.accuracy, row.diff_points, row.ci95_points, row.saved_share, row.net_share, row.grade


def _line(cells: list[str], widths: list[int]) -> str:
    first, *rest = (cell.rjust(width) for cell, width in zip(cells, widths, strict=True))
    return GAP.join((cells[0].ljust(len(first)), *rest)).rstrip()


def picture(report_folder: Path) -> Path | None:
    """One figure worth looking at first."""
    paths = (report_folder / "figures" / f"{name}.png" for name in PICTURES)
    return next((path for path in paths if path.is_file()), None)
