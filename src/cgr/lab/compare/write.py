"""From runs to a comparison of rules on disk: `compare.json`, tables, and the frontier as a figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from cgr.errors import UsageError
from cgr.lab.compare import PENALTIES, TUNE_ON, compare, tables
from cgr.lab.compare import figure as frontier
from cgr.lab.compare.result import SCHEMA, Compared
from cgr.lab.decide.any_rule import decide_rule
from cgr.lab.decide.columns import Bools
from cgr.lab.decide.run import Run
from cgr.lab.exchange import as_run_folder
from cgr.lab.fit import learn
from cgr.lab.output import paths, style
from cgr.lab.output.paths import beside, unique_names
from cgr.lab.output.table import write_table
from cgr.lab.report.numbers import check_penalties
from cgr.rules import Calibrated, Rule
from cgr.rules.calibrated import AS_CERTAINTY

FOLDER, JSON, FIGURE = "compare", "compare.json", "frontier"
CAPTION = "What tokens buy with each rule, and what each saves where accuracy stays the same."
NO_RULE = "No rule can be decided on these recordings."
Rules = Sequence[str] | Mapping[str, Rule] | None


@dataclass(frozen=True, slots=True)
class WrittenComparison:
    """Where a comparison is, and what is in it."""

    folder: Path
    comparisons: tuple[Compared, ...]

    def to_dict(self) -> dict[str, Any]:
        return as_json(self.comparisons)


def as_json(comparisons: Sequence[Compared]) -> dict[str, Any]:
    """One run as itself; several as a list."""
    if len(comparisons) == 1:
        return comparisons[0].to_dict()
    return {"schema": SCHEMA, "runs": [one.to_dict() for one in comparisons]}


def compare_run(
    run: str | Path,
    rules: Rules = None,
    penalties: Sequence[float] = PENALTIES,
    *,
    tune_on: float = TUNE_ON,
    patience: int | None = None,
) -> Compared:
    """Every rule on a run's folder, or on a file of traces. `patience`: see `cgr.lab.compare.compare`."""
    with as_run_folder(run) as folder:
        opened = Run.open(folder)
        return compare(
            opened.rule_columns(),
            partial(decide_rule, opened),
            rules,
            penalties,
            tune_on=tune_on,
            patience=patience,
            learn=partial(_learned, opened),
        )


def _learned(run: Run, rule: Rule, questions: Bools) -> Rule:
    """A rule that lives by weights, and was given none, learns them from these questions."""
    if not isinstance(rule, Calibrated) or rule.hopeless or rule.answered != AS_CERTAINTY:
        return rule
    return learn(rule, run.only(questions))


def write_comparison(
    runs: Sequence[str | Path],
    out: str | Path | None = None,
    rules: Rules = None,
    penalties: Sequence[float] = PENALTIES,
    *,
    tune_on: float = TUNE_ON,
) -> WrittenComparison:
    """Compare rules on each of these runs, and write everything about it into one folder."""
    if not runs:
        raise UsageError("There is no run to compare rules on.", "Give one: cgr compare runs/NAME.")
    costs = check_penalties(penalties)
    comparisons = _named([compare_run(run, rules, costs, tune_on=tune_on) for run in runs])
    folder = Path(out) if out else beside([Path(run) for run in runs], FOLDER)
    write_json(comparisons, folder)
    for one in comparisons:
        place = folder if len(comparisons) == 1 else folder / one.run.name
        tables.write(one, place)
        draw(one, place)
    if len(comparisons) > 1:
        write_table(tables.several(comparisons), folder)
    return WrittenComparison(folder, comparisons)


def _named(comparisons: Sequence[Compared]) -> tuple[Compared, ...]:
    names = unique_names([one.run.name for one in comparisons])
    return tuple(replace(one, run=replace(one.run, name=name)) for one, name in zip(comparisons, names, strict=True))


def write_json(comparisons: Sequence[Compared], folder: Path) -> None:
    paths.write_json(folder / JSON, as_json(comparisons))


def draw(compared: Compared | None, folder: Path, why_not: str = NO_RULE) -> style.SavedFigure:
    """The frontier, or why there is none."""
    if compared is None or not compared.entries:
        style.remove(FIGURE, folder)
        return style.SavedFigure(FIGURE, CAPTION, why_not=why_not or NO_RULE)
    with style.styled():
        return style.SavedFigure(FIGURE, CAPTION, style.save(frontier.draw(compared), FIGURE, folder))
