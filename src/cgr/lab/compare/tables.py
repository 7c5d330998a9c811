"""A comparison of rules as tables, and as a few lines for a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from cgr.lab.compare import prose as words
from cgr.lab.compare.result import AREA, SAVING, Compared, Entry, Point, Winner
from cgr.lab.output.table import Cell, Head, Table, write_table

RULE = Head("rule", "Rule")


def rules(compared: Compared) -> Table:
    """Each rule at the value that was chosen for equal accuracy, on the questions that are shown."""
    heads = (
        RULE,
        Head("parameter", "Parameter"),
        Head("value", "At", "g"),
        Head("equal", "Equal"),
        Head("accuracy", "Acc.", ".2f", 100, "%"),
        Head("diff_points", "Diff. (points)", "+.2f"),
        Head("ci95_diff_points", "95% interval", "+.2f"),
        Head("thinking_tokens", "Thinking", ",.1f"),
        Head("probe_tokens", "Probes", ",.1f"),
        Head("suffix_tokens", "Suffixes", ",.1f"),
        Head("gross_share", "Saved", ".1f", 100, "%"),
        Head("net_share", "Net", ".1f", 100, "%"),
        Head("ci95_net_share", "95% interval", ".1f", 100),
        Head("area", "Area", ".2f", 100, "%"),
        Head("ci95_area", "95% interval", ".2f", 100),
        *(Head(f"grade_{cost:g}", f"Grade p={cost:g}", ".2f", 100) for cost in compared.penalties),
    )
    rows = [("baseline", None, None, None, *_cells(compared.baseline), None, None, *compared.baseline.grade)]
    rows += [_rule_row(entry) for entry in compared.entries]
    return Table("compare", f"Every rule on the same traces. {words.how_chosen(compared)}", heads, tuple(rows))


def _rule_row(entry: Entry) -> tuple[Cell, ...]:
    shown, area = entry.shown, entry.by(AREA)
    first = (entry.rule, entry.parameter, shown.value, "yes" if entry.equal else "no")
    return *first, *_cells(shown), area.figure, area.ci95, *shown.grade


def _cells(point: Point) -> tuple[Cell, ...]:
    tokens = (point.thinking_tokens, point.probe_tokens, point.suffix_tokens)
    saved = (point.gross_share, point.net_share, point.ci95_net_share)
    return point.accuracy, point.diff_points, point.ci95_diff_points, *tokens, *saved


def winners(compared: Compared) -> Table:
    heads = (
        Head("measure", "By"),
        Head("first", "First"),
        Head("figure", "Figure", ".2f", 100, "%"),
        Head("second", "Second"),
        Head("difference", "Ahead by (points)", ".2f", 100),
        Head("ci95_difference", "95% interval", ".2f", 100),
        Head("tied", "Cannot be told from"),
    )
    return Table("compare_winners", "The best rule by each measure", heads, tuple(map(_winner_row, compared.winners)))


def _winner_row(one: Winner) -> tuple[Cell, ...]:
    second = (one.second, one.difference, one.ci95_difference)
    return words.label(one.measure), one.first, one.figure, *second, ", ".join(one.tied)


def sweep(compared: Compared) -> Table:
    """Every rule at every value, on all questions."""
    heads = (
        RULE,
        Head("parameter", "Parameter"),
        Head("value", "At", "g"),
        Head("accuracy", "Acc.", ".2f", 100, "%"),
        Head("ci95_accuracy", "95% interval", ".2f", 100),
        Head("diff_points", "Diff. (points)", "+.2f"),
        Head("ci95_diff_points", "95% interval", "+.2f"),
        Head("thinking_tokens", "Thinking", ",.1f"),
        Head("probe_tokens", "Probes", ",.1f"),
        Head("suffix_tokens", "Suffixes", ",.1f"),
        Head("gross_share", "Saved", ".1f", 100, "%"),
        Head("ci95_gross_share", "95% interval", ".1f", 100),
        Head("net_share", "Net", ".1f", 100, "%"),
        Head("ci95_net_share", "95% interval", ".1f", 100),
        Head("stopped", "Stopped", ".1f", 100, "%"),
        Head("gave_up", "Gave up", ".1f", 100, "%"),
        *(Head(f"grade_{cost:g}", f"Grade p={cost:g}", ".2f", 100) for cost in compared.penalties),
        *(Head(f"ci95_grade_{cost:g}", "95% interval", ".2f", 100) for cost in compared.penalties),
    )
    named = [head.name for head in heads[2:16]]
    rows = tuple(
        (entry.rule, entry.parameter, *(getattr(point, name) for name in named), *point.grade, *point.ci95_grade)
        for entry in compared.entries
        for point in entry.sweep
    )
    return Table("compare_sweep", "Every rule at every value of its parameter, on all questions", heads, rows)


def several(comparisons: Sequence[Compared]) -> Table:
    """Saving at equal accuracy, run by run."""
    names = list(dict.fromkeys(entry.rule for one in comparisons for entry in one.entries))
    heads = (RULE, *(Head(one.run.name, one.run.name, ".1f", 100, "%") for one in comparisons))
    rows = tuple((name, *(_saving(one, name) for one in comparisons)) for name in names)
    return Table("compare_runs", "Net tokens saved at equal accuracy, run by run", heads, rows)


def _saving(compared: Compared, name: str) -> Cell:
    found = next((entry for entry in compared.entries if entry.rule == name), None)
    return found.by(SAVING).figure if found else None


def write(compared: Compared, folder: Path) -> tuple[Path, ...]:
    return tuple(path for make in (rules, winners, sweep) for path in write_table(make(compared), folder))


LINES = (
    Head("rule", "Rule"),
    Head("at", "At"),
    Head("accuracy", "Acc.", ".1f", 100, "%"),
    Head("diff", "Diff.", "+.1f"),
    Head("interval", "95% interval", "+.1f"),
    Head("equal", "Equal"),
    Head("net", "Net", ".1f", 100, "%"),
    Head("net_interval", "95% interval", ".1f", 100),
    Head("area", "Area", ".1f", 100, "%"),
)


def table_lines(compared: Compared) -> list[str]:
    """For a terminal of some ninety columns; the first line is the head."""
    base: tuple[Cell, ...] = ("baseline", "", compared.baseline.accuracy, *[""] * 6)
    return Table("", "", LINES, (base, *(_line(entry) for entry in compared.entries))).lines()


def _line(entry: Entry) -> tuple[Cell, ...]:
    shown = entry.shown
    at = "" if shown.value is None else words.number(shown.value)
    accuracy = (shown.accuracy, shown.diff_points, shown.ci95_diff_points, "yes" if entry.equal else "no")
    return entry.rule, at, *accuracy, shown.net_share, shown.ci95_net_share, entry.by(AREA).figure
