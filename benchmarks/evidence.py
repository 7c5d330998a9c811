"""Rules fitted on one run and shown on another: `python -m benchmarks.evidence --fit RUN --show RUN`. No model is used.

For each rule: the net saving with its interval, the points with the bound that decides, the share of the oracle's saving
and where the rest goes, the gain over a fixed budget of the same cost, and what is saved on the solved traces alone,
beside what the oracle saves there. The last columns are from the shown run alone: the worst of several splits, with the
rule fitted anew on one half of the questions and shown on the other. Both runs must have no question text in common.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from cgr.errors import CgrError
from cgr.lab import fit as fitting
from cgr.lab.compare import SPLITS, compare_run
from cgr.lab.compare.result import AcrossSplits
from cgr.lab.decide.arrays import Decisions
from cgr.lab.decide.columns import Columns
from cgr.lab.decide.run import Run
from cgr.lab.output import Cell, Head, Table, with_interval
from cgr.lab.score.adaptive import FixedBudgets, missed, oracle_saving
from cgr.lab.score.paired import Paired, measure
from cgr.rules import Rule, make_rule

RULES = ("cgr", "cgr-drought", "calibrated")
PLAIN = "cgr .99"  # not fitted
HEADS = (
    Head("rule", "Rule"),
    Head("at", "At"),
    *with_interval("net", "Net", ".1f", 100, "%"),
    Head("points", "Points", "+.2f"),
    Head("ci95_bound", "95% bound", "+.2f"),
    Head("verdict", "Accuracy"),
    Head("oracle", "Of oracle", ".1f", 100, "%"),
    Head("unsolved", "Unsolved", ".1f", 100, "%"),
    Head("late", "Late", ".1f", 100, "%"),
    Head("probes", "Probes", ".1f", 100, "%"),
    *with_interval("gain", "Gain", "+.1f"),
    Head("solved", "Solved, gross", ".1f", 100, "%"),
    Head("of_solved", "of its oracle", ".1f", 100, "%"),
    Head("worst_net", "Worst net", ".1f", 100, "%"),
    Head("worst_points", "Worst points", "+.2f"),
)


def fitted(name: str, run: Run, interval: int) -> Rule:
    """This rule fitted to a run, for probes at this interval."""
    rule: Any = fitting.fit(make_rule(name, interval=run.interval), run).rule
    made: Rule = replace(rule, interval=interval)
    return made


def solved_saving(columns: Columns, decided: Decisions) -> tuple[float, float]:
    """The share of thinking that is saved, without counting probes, on the traces whose final answer is right; and the
    same as a share of what the oracle saves there."""
    solved = columns.graded & columns.final_right
    natural = max(float(columns.natural[solved].sum()), 1.0)
    gross = 1 - float(decided.at[solved].sum()) / natural
    return gross, gross / max(oracle_saving(columns, solved), 1e-9)


def row(name: str, rule: Rule, run: Run, across: AcrossSplits | None) -> tuple[Cell, ...]:
    """The numbers of one rule on the shown run."""
    columns, decided = run.rule_columns(), run.decide(rule)
    paired: Paired = measure(columns, [decided])
    score, lost = paired.all[1], missed(columns, decided, columns.graded)
    gain = FixedBudgets.of(columns, columns.graded).gain(decided)
    value = getattr(rule, str(rule.main))
    accuracy = (score.diff_points, score.ci95_bound_points, score.verdict)
    oracle = score.net_share / max(oracle_saving(columns, columns.graded), 1e-9)
    worst = (across.net_share_worst, across.diff_points_worst) if across else (None, None)
    first = (name, f"{rule.main} {value:g}", score.net_share, score.ci95_net_share)
    parts = (oracle, lost.unsolved, lost.late, lost.probes, gain.gain_points, gain.ci95)
    return *first, *accuracy, *parts, *solved_saving(columns, decided), *worst


def shared_texts(one: Run, other: Run) -> int:
    """How many question texts both runs have."""
    texts = [{" ".join(trace.question.split()) for trace in run.traces()} - {""} for run in (one, other)]
    return len(texts[0] & texts[1])


def evidence(fit: Path, show: Path, names: Sequence[str] = RULES, splits: int = SPLITS) -> Table:
    """The table of these rules."""
    learning, shown = fitting.open_run(fit), fitting.open_run(show)
    plain, *_ = [make_rule(name, interval=shown.interval) for name in ("cgr", *names)]  # refuses one that cannot be fitted
    rules = {PLAIN: plain} | {name: fitted(name, learning, shown.interval) for name in names}
    found = compare_run(show, list(names), splits=splits)
    across = {entry.rule: entry.splits for entry in found.entries}
    rows = tuple(row(name, rule, shown, across.get(name)) for name, rule in rules.items())
    columns = shown.rule_columns()
    counts = f"fitted on {len(learning.rule_columns().questions)} questions, shown on {len(columns.questions)}"
    oracle = oracle_saving(columns, columns.graded)
    caption = f"{counts}, {shared_texts(learning, shown)} texts in both; the oracle saves {oracle:.1%}"
    return Table("evidence", caption, HEADS, rows)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fit", type=Path, required=True, help="the run that rules are fitted to")
    parser.add_argument("--show", type=Path, required=True, help="the run that they are shown on")
    parser.add_argument("--rules", default=",".join(RULES), help="names of rules, with commas")
    parser.add_argument("--splits", type=int, default=SPLITS)
    parser.add_argument("--format", choices=("text", "markdown", "csv"), default="text")
    given = parser.parse_args()
    try:
        table = evidence(given.fit, given.show, given.rules.split(","), given.splits)
    except CgrError as error:
        raise SystemExit(f"{error.message} {error.hint}") from error
    forms = {"text": lambda: "\n".join(table.lines()), "markdown": table.markdown, "csv": table.csv}
    click.echo(f"{table.caption}\n\n{forms[given.format]()}")


if __name__ == "__main__":
    main()
