"""The raw certainty beside a certainty over the options: what `cgr` does if it reads the smallest probability."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cgr.certainty import DEFAULT as AGGREGATE
from cgr.lab.decide.arrays import Decisions, first_sure, with_aggregate
from cgr.lab.decide.columns import Columns
from cgr.lab.output import Head, Table
from cgr.lab.report.numbers import at
from cgr.lab.report.result import RawRow, Report
from cgr.lab.score import accuracy as scores
from cgr.lab.store.recorded import RecordedTrace

HEADS = (
    Head("threshold", "θ", "g"),
    Head("accuracy", "Rel. Acc.", ".2f", 100, "%"),
    Head("diff_points", "Rel. Diff. (points)", "+.2f"),
    Head("fired", "Stopped early", ",d"),
    Head("share", "Share", ".1f", 100, "%"),
    Head("net_share", "Net share", ".1f", 100, "%"),
)


def with_raw(report: Report, columns: Columns, traces: Sequence[RecordedTrace]) -> Report:
    """The report with the rule on the raw certainty, and a note about both, if some probe has its options."""
    if not any(probe.options for trace in traces for probe in trace.probes):
        return report
    plain = with_aggregate(columns, traces, AGGREGATE)
    rows = tuple(_row(plain, row.threshold, first_sure(plain, row.threshold)) for row in report.thresholds)
    report = replace(report, raw=rows)
    return replace(report, notes=(*report.notes, _note(report)))


def _row(columns: Columns, threshold: float, decided: Decisions) -> RawRow:
    saved, right = scores.savings(columns, decided), decided.right
    points = scores.compare(columns, right).diff_points
    return RawRow(threshold, scores.accuracy(columns, right), points, saved.share, saved.net_share, decided.fired)


def _note(report: Report) -> str:
    """What certainty over the options changes at the shown threshold."""
    raw = next(row for row in report.raw if row.threshold == report.shown)
    own, saved = at(report.thresholds, report.shown), at(report.savings, report.shown)
    both = [_saved(saved.net_share, own.diff_points), _saved(raw.net_share, raw.diff_points)]
    return (
        f"The certainty is that of the chosen letter among the options. At {report.shown:g} it saves {both[0]}; the raw "
        f"certainty of the same probes saves {both[1]}."
    )


def _saved(net: float, diff: float | None) -> str:
    return f"{100 * net:.1f}% net" + ("" if diff is None else f" at {diff:+.2f} points")


def table(report: Report) -> Table:
    """The rule on the raw certainty at each threshold."""
    caption = f"{report.rule} on the raw certainty (the smallest probability), not normalised over the options"
    return Table.of_records("raw_certainty", caption, HEADS, report.raw)


def lines(report: Report) -> list[str]:
    """The same for a terminal."""
    return ["Raw certainty:", *table(report).lines(left=0)]
