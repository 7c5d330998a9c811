"""A comparison of rules as tables, as sentences, and as lines for a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from cgr.lab.compare.result import ACCURACY, AREA, SAVING, Compared, Entry, Point, Undecided, Winner
from cgr.lab.output import PERCENT, Cell, Head, Table, with_interval, write_table
from cgr.lab.store.config import in_words

LABELS = {
    SAVING: "Most tokens saved at equal accuracy",
    AREA: "Largest area under the frontier",
    ACCURACY: "Best accuracy",
}
POINTS = Head("points", "", ".1f", 100, " points")
MAX_NAMED = 3  # of the rules that do not differ from the best


def label(measure: str) -> str:
    """The heading of a measure."""
    return LABELS.get(measure) or f"Best {measure.capitalize()}"


def number(at: float) -> str:
    """The value of a parameter in its shortest form."""
    return f"{at:,.0f}" if at == int(at) and abs(at) >= 1000 else f"{at:g}"


def sentences(compared: Compared) -> tuple[str, ...]:
    """One sentence for each measure: the best rule and its lead."""
    return tuple(f"{label(one.measure)}: {verdict(compared, one)}" for one in compared.winners)


def verdict(compared: Compared, winner: Winner) -> str:
    """Which rule is best by one measure, and by how much."""
    if winner.first is None or winner.figure is None:
        where = "on the questions it was chosen on and on those shown" if compared.split.apart else "on these questions"
        return f"no rule; none has an accuracy within {-compared.margin:g} point of the baseline's {where}."
    best = compared.entry(winner.first)
    lead = f"{winner.first}, {PERCENT.text(winner.figure)}{_chosen(best, winner.measure)}"
    if winner.second is None or winner.difference is None or winner.ci95_difference is None:
        return f"{lead}; no other rule counts."
    if winner.tied:
        return f"no clear winner; {lead}, leads, but its interval overlaps with {_some(winner.tied)}."
    ahead = f"{POINTS.text(winner.difference)} {POINTS.text(winner.ci95_difference)}"
    return f"{lead}; ahead of {winner.second} by {ahead}."


def _chosen(entry: Entry, measure: str) -> str:
    at = entry.by(measure).value
    return "" if entry.parameter is None or at is None else f" at {entry.parameter} {number(at)}"


def _some(names: tuple[str, ...]) -> str:
    if len(names) <= MAX_NAMED + 1:
        return in_words(names)
    return in_words([*names[:MAX_NAMED], f"{len(names) - MAX_NAMED} others"])


def reasons(missing: Sequence[Undecided]) -> tuple[tuple[str, str], ...]:
    """Why rules or values are missing, and a hint for each reason; rules with the same reason are listed together."""
    named: dict[tuple[str, str], list[str]] = {}
    for one in missing:
        where = f" at {', '.join(number(at) for at in one.values)}" if one.values else ""
        named.setdefault((one.why, one.hint), []).append(one.rule + where)
    return tuple((f"{in_words(names)}: {why}", hint) for (why, hint), names in named.items())


def how_chosen(compared: Compared) -> str:
    """On which questions values were chosen and shown, as a sentence."""
    split = compared.split
    if not split.apart:
        return f"Parameters chosen and shown on the same {split.shown} questions."
    return f"Parameters chosen on {split.tuning} questions; the numbers are from the other {split.shown}."


RULE = Head("rule", "Rule")
SETTING = (RULE, Head("parameter", "Parameter"), Head("value", "At", "g"))
SCORES = (
    *with_interval("accuracy", "Acc.", ".2f", 100, "%"),
    *with_interval("diff_points", "Diff. (points)", "+.2f"),
    Head("thinking_tokens", "Thinking", ",.1f"),
    Head("probe_tokens", "Probes", ",.1f"),
    Head("suffix_tokens", "Suffixes", ",.1f"),
    *with_interval("gross_share", "Saved", ".1f", 100, "%"),
    *with_interval("net_share", "Net", ".1f", 100, "%"),
    Head("stopped", "Stopped", ".1f", 100, "%"),
    Head("gave_up", "Gave up", ".1f", 100, "%"),
)
SHOWN = tuple(one for one in SCORES if one.name not in ("ci95_accuracy", "ci95_gross_share", "stopped", "gave_up"))


def rules(compared: Compared) -> Table:
    """Each rule at the value chosen for equal accuracy, on the shown questions."""
    area = with_interval("area", "Area", ".2f", 100, "%")
    heads = (*SETTING, Head("equal", "Equal"), *SHOWN, *area, *_grades(compared))
    rows = [("baseline", None, None, None, *_cells(compared.baseline, SHOWN), None, None, *compared.baseline.grade)]
    rows += [_rule_row(entry) for entry in compared.entries]
    return Table("compare", f"All rules on the same traces. {how_chosen(compared)}", heads, tuple(rows))


def _grades(compared: Compared) -> list[Head]:
    return [Head(f"grade_{cost:g}", f"Grade p={cost:g}", ".2f", 100) for cost in compared.penalties]


def _cells(point: Point, heads: Sequence[Head]) -> tuple[Cell, ...]:
    return tuple(getattr(point, head.name) for head in heads)


def _rule_row(entry: Entry) -> tuple[Cell, ...]:
    shown, area = entry.shown, entry.by(AREA)
    first = (entry.rule, entry.parameter, shown.value, "yes" if entry.equal else "no")
    return *first, *_cells(shown, SHOWN), area.figure, area.ci95, *shown.grade


def winners(compared: Compared) -> Table:
    """The best rule by each measure."""
    heads = (
        Head("measure", "By"),
        Head("first", "First"),
        Head("figure", "Figure", ".2f", 100, "%"),
        Head("second", "Second"),
        *with_interval("difference", "Ahead by (points)", ".2f", 100),
        Head("tied", "Does not differ from"),
    )
    return Table("compare_winners", "The best rule by each measure", heads, tuple(map(_winner_row, compared.winners)))


def _winner_row(one: Winner) -> tuple[Cell, ...]:
    second = (one.second, one.difference, one.ci95_difference)
    return label(one.measure), one.first, one.figure, *second, ", ".join(one.tied)


def sweep(compared: Compared) -> Table:
    """Each rule at every value of its parameter, on all questions."""
    grades = _grades(compared)
    spans = [Head(f"ci95_{one.name}", "95% interval", ".2f", 100) for one in grades]
    rows = tuple(
        (entry.rule, entry.parameter, point.value, *_cells(point, SCORES), *point.grade, *point.ci95_grade)
        for entry in compared.entries
        for point in entry.sweep
    )
    caption = "All rules at every value of their parameter, on all questions"
    return Table("compare_sweep", caption, (*SETTING, *SCORES, *grades, *spans), rows)


def several(comparisons: Sequence[Compared]) -> Table:
    """The net saving of each rule at equal accuracy, with a column for each run."""
    names = list(dict.fromkeys(entry.rule for one in comparisons for entry in one.entries))
    heads = (RULE, *(Head(one.run.name, one.run.name, ".1f", 100, "%") for one in comparisons))
    rows = tuple((name, *(_saving(one, name) for one in comparisons)) for name in names)
    return Table("compare_runs", "Net tokens saved at equal accuracy, run by run", heads, rows)


def _saving(compared: Compared, name: str) -> Cell:
    found = next((entry for entry in compared.entries if entry.rule == name), None)
    return found.by(SAVING).figure if found else None


def write(compared: Compared, folder: Path) -> tuple[Path, ...]:
    """Write all tables of a comparison into this folder."""
    return tuple(path for make in (rules, winners, sweep) for path in write_table(make(compared), folder))


LINES = (
    Head("rule", "Rule"),
    Head("at", "At"),
    Head("accuracy", "Acc.", ".1f", 100, "%"),
    *with_interval("diff", "Diff.", "+.1f"),
    Head("equal", "Equal"),
    *with_interval("net", "Net", ".1f", 100, "%"),
    Head("area", "Area", ".1f", 100, "%"),
)


def table_lines(compared: Compared) -> list[str]:
    """The rules as lines for a terminal of about ninety columns; the first line has the headings."""
    base: tuple[Cell, ...] = ("baseline", "", compared.baseline.accuracy, *[""] * 6)
    return Table("", "", LINES, (base, *(_line(entry) for entry in compared.entries))).lines()


def _line(entry: Entry) -> tuple[Cell, ...]:
    shown = entry.shown
    at = "" if shown.value is None else number(shown.value)
    accuracy = (shown.accuracy, shown.diff_points, shown.ci95_diff_points, "yes" if entry.equal else "no")
    return entry.rule, at, *accuracy, shown.net_share, shown.ci95_net_share, entry.by(AREA).figure
