"""A comparison of rules as tables, as sentences, and as lines for a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from cgr.lab.compare.result import ACCURACY, AREA, SAVING, Compared, Entry, Point, Undecided, Winner
from cgr.lab.compare.wording import worded_table
from cgr.lab.decide.columns import FINAL, GOLD
from cgr.lab.output import PERCENT, Cell, Head, Table, plural, with_interval, write_table
from cgr.lab.score.agreement import NO_GOLDS, worded
from cgr.lab.score.bounds import EQUAL, MAX_QUESTIONS, UNKNOWN, WORSE
from cgr.lab.store.config import in_words

LABELS = {
    SAVING: "Most tokens saved at equal accuracy",
    AREA: "Largest area under the frontier",
    ACCURACY: "Best accuracy",
}
POINTS = Head("points", "", ".1f", 100, " points")
SHORT = {EQUAL: "yes", WORSE: "worse", UNKNOWN: "?"}  # the verdicts in a terminal
LEGEND = (
    "Equal: accuracy within 1 point on the questions shown; Chosen: on those where values were chosen; ?: cannot be told."
)
MAX_NAMED = 3  # of the rules that do not differ from the best


def label(measure: str, reference: str = GOLD) -> str:
    """The heading of a measure."""
    return worded(LABELS.get(measure) or f"Best {measure.capitalize()}", reference)


def legend(compared: Compared) -> str:
    """What the columns of the verdicts say."""
    return worded(LEGEND, compared.reference)


def number(at: float) -> str:
    """The value of a parameter in its shortest form."""
    return f"{at:,.0f}" if at == int(at) and abs(at) >= 1000 else f"{at:g}"


def sentences(compared: Compared) -> tuple[str, ...]:
    """One sentence for each measure: the best rule and its lead."""
    return tuple(f"{label(one.measure, compared.reference)}: {verdict(compared, one)}" for one in compared.winners)


def verdict(compared: Compared, winner: Winner) -> str:
    """Which rule is best by one measure, and by how much."""
    if winner.first is None or winner.figure is None:
        if any(entry.equal for entry in compared.entries):
            return worded("no rule; those with equal accuracy save nothing after probe tokens.", compared.reference)
        none = f"no rule; none is shown to have an accuracy within {-compared.margin:g} point of the baseline's."
        return worded(none, compared.reference)
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


def settled_by(compared: Compared) -> str:
    """Which rules cannot be told from the baseline, and how many questions would settle it; empty if there are none."""
    unknown = [entry for entry in compared.entries if entry.verdict == UNKNOWN]
    if not unknown:
        return ""
    counts = sorted((entry.needed_questions or MAX_QUESTIONS, entry.rule) for entry in unknown)
    (least, first), (most, last) = counts[0], counts[-1]
    needed = f"from {_count(least)} ({first}) to {_count(most)} ({last})" if least < most else _count(least)
    told = f"Whether accuracy is equal cannot be told for {plural(len(unknown), 'rule')}."
    return worded(f"{told} At the rates seen, {needed} shown questions would settle it.", compared.reference)


def _count(questions: int) -> str:
    return f"over {MAX_QUESTIONS:,}" if questions >= MAX_QUESTIONS else f"about {questions:,}"


def reasons(missing: Sequence[Undecided]) -> tuple[tuple[str, str], ...]:
    """Why rules or values are missing, and a hint for each reason; rules with the same reason are listed together."""
    named: dict[tuple[str, str], list[str]] = {}
    for one in missing:
        where = f" at {', '.join(number(at) for at in one.values)}" if one.values else ""
        named.setdefault((one.why, one.hint), []).append(one.rule + where)
    return tuple((f"{in_words(names)}: {why}", hint) for (why, hint), names in named.items())


def how_chosen(compared: Compared) -> str:
    """On which questions values were chosen and shown; without known answers, after what is measured instead."""
    split, first = compared.split, f"{NO_GOLDS} " if compared.reference == FINAL else ""
    if not split.apart:
        return f"{first}Parameters chosen and shown on the same {split.shown} questions."
    return f"{first}Parameters chosen on {split.tuning} questions; the numbers are from the other {split.shown}."


RULE = Head("rule", "Rule")
SETTING = (RULE, Head("parameter", "Parameter"), Head("value", "At", "g"))
SCORES = (
    *with_interval("accuracy", "Acc.", ".2f", 100, "%"),
    *with_interval("diff_points", "Diff. (points)", "+.2f"),
    Head("ci95_bound_points", "95% bound", "+.2f"),
    Head("verdict", "Accuracy"),
    Head("thinking_tokens", "Thinking", ",.1f"),
    Head("probe_tokens", "Probes", ",.1f"),
    Head("suffix_tokens", "Suffixes", ",.1f"),
    *with_interval("gross_share", "Saved", ".1f", 100, "%"),
    *with_interval("net_share", "Net", ".1f", 100, "%"),
    Head("stopped", "Stopped", ".1f", 100, "%"),
    Head("gave_up", "Gave up", ".1f", 100, "%"),
)
LEFT_OUT = ("ci95_accuracy", "verdict", "ci95_gross_share", "stopped", "gave_up")
SHOWN = tuple(one for one in SCORES if one.name not in LEFT_OUT)
VERDICTS = (
    Head("equal", "Equal"),
    Head("verdict", "Accuracy"),
    Head("tuning_verdict", "Where chosen"),
    Head("needed_questions", "Questions needed", ",d"),
)


def rules(compared: Compared) -> Table:
    """Each rule at the value chosen for equal accuracy, on the shown questions."""
    area = with_interval("area", "Area", ".2f", 100, "%")
    heads = (*SETTING, *VERDICTS, *SHOWN, *area, *_grades(compared))
    nothing = [None] * (len(SETTING) - 1 + len(VERDICTS))
    rows = [("baseline", *nothing, *_cells(compared.baseline, SHOWN), None, None, *compared.baseline.grade)]
    rows += [_rule_row(entry) for entry in compared.entries]
    return Table("compare", f"All rules on the same traces. {how_chosen(compared)}", heads, tuple(rows))


def _grades(compared: Compared) -> list[Head]:
    return [Head(f"grade_{cost:g}", f"Grade p={cost:g}", ".2f", 100) for cost in compared.penalties]


def _cells(point: Point, heads: Sequence[Head]) -> tuple[Cell, ...]:
    return tuple(getattr(point, head.name) for head in heads)


def _rule_row(entry: Entry) -> tuple[Cell, ...]:
    shown, area = entry.shown, entry.by(AREA)
    first = (entry.rule, entry.parameter, shown.value, "yes" if entry.equal else "no")
    verdicts = (entry.verdict, entry.tuning_verdict, entry.needed_questions)
    return *first, *verdicts, *_cells(shown, SHOWN), area.figure, area.ci95, *shown.grade


ORACLE = (
    Head("net_share", "Net", ".1f", 100, "%"),
    Head("prefilled_net_share", "Prefill paid", ".1f", 100, "%"),
    Head("oracle_share", "Of oracle", ".1f", 100, "%"),
    Head("unsolved", "Unsolved", ".1f", 100, "%"),
    Head("late", "Late", ".1f", 100, "%"),
    Head("probes", "Probes", ".1f", 100, "%"),
    Head("fixed_accuracy", "Fixed", ".1f", 100, "%"),
    *with_interval("gain_points", "Gain", "+.1f"),
    Head("fixed_cost_for_same_accuracy", "Fixed, same accuracy", ",.1f"),
)


def oracle(compared: Compared) -> Table:
    """What each rule gets of the oracle's saving, where the rest goes, and the fixed budget of the same cost."""
    rows = tuple((entry.rule, *_oracle_cells(entry)) for entry in compared.entries)
    caption = f"The oracle saves {PERCENT.text(compared.oracle)}; what rules get of it, and fixed budgets of equal cost"
    return Table("compare_oracle", caption, (RULE, *ORACLE), rows)


def _oracle_cells(entry: Entry) -> tuple[Cell, ...]:
    point, gain = entry.shown, entry.adaptive
    missed = (point.unsolved, point.late, point.probes)
    fixed = (gain.fixed_accuracy, gain.gain_points, gain.ci95, gain.fixed_cost_for_same_accuracy)
    return point.net_share, point.prefilled_net_share, entry.oracle_share, *missed, *fixed


SPLITS = (
    Head("splits", "Splits", "d"),
    Head("equal", "Equal", "d"),
    Head("worse", "Worse", "d"),
    Head("net_share", "Net, mean", ".1f", 100, "%"),
    Head("net_share_worst", "worst", ".1f", 100, "%"),
    Head("net_share_best", "best", ".1f", 100, "%"),
    Head("diff_points", "Diff., mean", "+.2f"),
    Head("diff_points_worst", "worst", "+.2f"),
    Head("diff_points_best", "best", "+.2f"),
)


def splits(compared: Compared) -> Table:
    """Each rule over several splits of the questions, its value chosen anew in each."""
    found = [(entry.rule, entry.splits) for entry in compared.entries if entry.splits]
    rows = tuple((name, *(getattr(one, head.name) for head in SPLITS)) for name, one in found)
    caption = f"Over {plural(compared.splits, 'split')} of the questions, the value chosen anew in each; shown on the rest"
    return Table("compare_splits", caption, (RULE, *SPLITS), rows)


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
    rows = tuple(_winner_row(one, compared.reference) for one in compared.winners)
    return Table("compare_winners", "The best rule by each measure", heads, rows)


def _winner_row(one: Winner, reference: str) -> tuple[Cell, ...]:
    second = (one.second, one.difference, one.ci95_difference)
    return label(one.measure, reference), one.first, one.figure, *second, ", ".join(one.tied)


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
    kinds = [worded("accuracy", one) for one in (GOLD, FINAL) if one in {each.reference for each in comparisons}]
    return Table("compare_runs", f"Net tokens saved at equal {' or '.join(kinds)}, run by run", heads, rows)


def _saving(compared: Compared, name: str) -> Cell:
    found = next((entry for entry in compared.entries if entry.rule == name), None)
    return found.by(SAVING).figure if found else None


def write(compared: Compared, folder: Path) -> tuple[Path, ...]:
    """Write all tables of a comparison into this folder."""
    made = (rules, winners, sweep, oracle, splits)
    tables = (worded_table(make(compared), compared.reference) for make in made)
    return tuple(path for table in tables for path in write_table(table, folder))


LINES = (
    Head("rule", "Rule"),
    Head("at", "At"),
    Head("accuracy", "Acc.", ".1f", 100, "%"),
    Head("diff", "Diff.", "+.1f"),
    Head("ci95_bound", "95% bound", "+.1f"),
    Head("equal", "Equal"),
    Head("chosen", "Chosen"),
    *with_interval("net", "Net", ".1f", 100, "%"),
    Head("area", "Area", ".1f", 100, "%"),
)


def table_lines(compared: Compared) -> list[str]:
    """The rules as lines for a terminal of about ninety columns; the first line has the headings."""
    base: tuple[Cell, ...] = ("baseline", "", compared.baseline.accuracy, *[""] * 7)
    table = Table("", "", LINES, (base, *(_line(entry) for entry in compared.entries)))
    return worded_table(table, compared.reference).lines()


def _line(entry: Entry) -> tuple[Cell, ...]:
    shown = entry.shown
    at = "" if shown.value is None else number(shown.value)
    accuracy = (shown.accuracy, shown.diff_points, shown.ci95_bound_points)
    verdicts = (SHORT[entry.verdict], SHORT[entry.tuning_verdict])
    return entry.rule, at, *accuracy, *verdicts, shown.net_share, shown.ci95_net_share, entry.by(AREA).figure


def further_lines(compared: Compared) -> list[str]:
    """For a terminal: what each rule gets of the oracle's saving, and each rule over several splits."""
    heads = (RULE, *ORACLE[1:-1], Head("fixed_cost_for_same_accuracy", "Same acc.", ",.0f"))
    rows = tuple((entry.rule, *_oracle_cells(entry)[1:]) for entry in compared.entries)
    gained = worded_table(Table("", "", heads, rows), compared.reference)
    saves = worded(f"The oracle saves {PERCENT.text(compared.oracle)}.", compared.reference)
    found = [saves, *gained.lines()]
    over = splits(compared)
    return [*found, "", f"{over.caption}.", *over.lines()] if over.rows else found
