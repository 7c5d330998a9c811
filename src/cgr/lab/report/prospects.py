"""Whether stopping early is for this run: the rule beside a fixed budget of the same cost, head room and false sureness, as
tables and as lines for a terminal."""

from __future__ import annotations

from cgr.lab.output import Cell, Head, Table, with_interval
from cgr.lab.report.result import Report
from cgr.lab.score.adaptive import SURE, AdaptiveRow, prospect_sentences

THRESHOLD = Head("threshold", "θ", "g")
FIXED = (
    Head("cost_mean", "Tokens (mean)", ",.1f"),
    Head("accuracy", "Rule", ".2f", 100, "%"),
    Head("fixed_accuracy", "Fixed budget of that cost", ".2f", 100, "%"),
    *with_interval("gain_points", "Gain (points)", "+.2f"),
    Head("fixed_cost_for_same_accuracy", "Fixed tokens for the same accuracy", ",.1f"),
)


def adaptive(report: Report) -> Table:
    """The rule at each threshold beside a fixed budget of the same mean cost."""
    rows = tuple(map(_fixed_cells, report.adaptive))
    caption = f"{report.rule} beside a fixed budget of the same cost, probe tokens included"
    return Table("adaptive", caption, (THRESHOLD, *FIXED), rows)


def _fixed_cells(row: AdaptiveRow) -> tuple[Cell, ...]:
    gain = (row.fixed_accuracy, row.gain_points, row.ci95, row.fixed_cost_for_same_accuracy)
    return row.threshold, row.cost_mean, row.accuracy, *gain


def false_sure(report: Report) -> Table:
    """False sureness at each threshold."""
    heads = (THRESHOLD, Head("probes", "Closed probes", ",d"), Head("share", "Not the final answer", ".2f", 100, "%"))
    caption = "False sureness: probes at or above the threshold whose answer is not the final one of their trace"
    return Table.of_records("false_sure", caption, heads, report.false_sure)


def headroom(report: Report) -> Table:
    """Head room, false sureness at .99, and what they say."""
    sure = next(row for row in report.false_sure if row.threshold == SURE)
    heads = (
        Head("headroom", "Head room", ".2f", 100, "%"),
        Head("probes", f"Closed probes at {SURE:g}", ",d"),
        Head("share", "Not the final answer", ".2f", 100, "%"),
        Head("verdict", "Verdict"),
    )
    row = (report.headroom, sure.probes, sure.share, report.verdict or "")
    return Table("headroom", "Head room: thinking after the last change of answer", heads, (row,))


def without_golds(report: Report) -> list[str]:
    """The table of a run without known answers, for a terminal: how many answers a stop changes, and the tokens saved."""
    heads = (
        THRESHOLD,
        Head("disagreement", "Changed", ".1f", 100, "%"),
        Head("total", "Saved", ",d"),
        Head("share", "Share", ".1f", 100, "%"),
        Head("net_share", "Net", ".1f", 100, "%"),
    )
    return Table.of_records("", "", heads, report.savings).lines(left=0)


def lines(report: Report) -> list[str]:
    """The fixed budget of the same cost, and what head room and false sureness say, for a terminal."""
    sure = next(row for row in report.false_sure if row.threshold == SURE)
    return [*_fixed_lines(report), *prospect_sentences(report.headroom, sure, report.verdict)]


def _fixed_lines(report: Report) -> list[str]:
    found = [row for row in report.adaptive if (row.gain_points, row.fixed_cost_for_same_accuracy) != (None, None)]
    if not found:
        return []
    heads = (
        THRESHOLD,
        Head("cost", "Tokens", ",.0f"),
        Head("accuracy", "Acc.", ".1f", 100, "%"),
        Head("fixed", "Fixed budget", ".1f", 100, "%"),
        *with_interval("gain", "Gain", "+.1f"),
        Head("tokens", "Fixed, same acc.", ",.0f"),
    )
    rows = tuple(map(_fixed_cells, found))
    return ["Beside a fixed budget of the same cost:", *Table("", "", heads, rows).lines(left=0)]
