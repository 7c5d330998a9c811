"""A report in a few lines, for a terminal of eighty columns."""

from __future__ import annotations

from cgr.lab.output.style import tokens
from cgr.lab.output.table import Cell, Head
from cgr.lab.report.result import Report, SavingsRow, ThresholdRow

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
GAP = "  "


def lines(report: Report) -> list[str]:
    """What the run is, the baseline and each threshold, and what the numbers cannot say."""
    size, base = report.size, report.baseline
    title = f"{report.run.name}: {report.run.model}, {_of(size.questions, 'question')} × {_of(size.seeds, 'seed')}"
    first: tuple[Cell, ...] = ("baseline", base.correct_mean, base.accuracy, *[""] * 6)
    rows = [first, *(_row(*pair) for pair in zip(report.thresholds, report.savings, strict=True))]
    texts = [[head.text(cell) for head, cell in zip(HEADS, row, strict=True)] for row in rows]
    texts.insert(0, [head.label for head in HEADS])
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    table = [GAP.join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in texts]
    return [title, *table, *(f"Note: {note}" for note in report.notes)]


def _row(row: ThresholdRow, saved: SavingsRow) -> tuple[Cell, ...]:
    seeds = None if row.equal is None else f"{row.equal}/{row.better}/{row.worse}"
    scored = (row.threshold, row.correct_mean, row.accuracy, row.diff_mean, row.ci95, seeds)
    return *scored, tokens(saved.total), saved.share, saved.net_share


def _of(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
