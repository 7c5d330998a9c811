"""Rules at every value of their main parameter: which rules, what they decide, their scores, and what cannot be decided."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from cgr.errors import NotRecorded, UnknownName, UsageError
from cgr.lab.compare.result import Point, Undecided
from cgr.lab.decide.arrays import Decisions, at_budget
from cgr.lab.decide.columns import Columns
from cgr.lab.score.bootstrap import intervals
from cgr.lab.score.paired import Paired
from cgr.lab.store.config import ALL, rule_at_interval
from cgr.rules import Rule, known_rules
from cgr.rules import files as rule_files

Decide = Callable[[Rule], Decisions]
MAX_BUDGETS = 32  # points of the fixed-budget curve
TOO_SLOW = "It has no array form, and replaying it takes too long here."
TOO_SLOW_HINT = "Compare it with `cgr compare`."


@dataclass(frozen=True, eq=False)
class Setting:
    """A rule at one value of its main parameter (None: it has none), under the name that it is compared by, and its
    decisions on every trace."""

    name: str
    parameter: str | None
    value: float | None
    decided: Decisions


def chosen_rules(rules: Sequence[str] | Mapping[str, Rule] | None, interval: int) -> dict[str, Rule]:
    """All rules, or these, under the name of the rule or of the file it came from."""
    if isinstance(rules, Mapping):
        return dict(rules)
    if rules is not None and not rules:
        raise UsageError("There is no rule to compare.", "Name some: --rules cgr,fixed-budget; `cgr rules` lists them.")
    known = known_rules()
    found: dict[str, Rule] = {}
    for name in rules or (ALL,):
        if name == ALL:
            found |= {one: rule_at_interval(one, interval) for one in known}
        elif name in known:
            found[name] = rule_at_interval(name, interval)
        elif rule_files.is_file(name):
            found[name if Path(name).stem in found else Path(name).stem] = _from_file(name, interval)
        else:
            raise UnknownName.among("rule", name, [*known, ALL])
    return found


def _from_file(path: str, interval: int) -> Rule:
    file = rule_files.read(path)
    has_interval = "interval" in file.made().parameters() and interval >= 1
    return file.made(interval=interval) if has_interval else file.made()


def sweep(
    rules: Mapping[str, Rule], columns: Columns, decide: Decide, max_replays: int | None = None
) -> tuple[tuple[Setting, ...], tuple[Undecided, ...]]:
    """Every rule at every value that the recordings can decide, and the rules and values that they cannot."""
    found: list[Setting] = []
    missing: list[Undecided] = []
    for name, rule in rules.items():
        if max_replays is not None and _replays(rule, columns) > max_replays:
            missing.append(Undecided(name, TOO_SLOW, TOO_SLOW_HINT))
            continue
        made, refused = _sweep_rule(name, rule, decide)
        if made and rule.sweeps_budget:
            made, refused = _sweep_budget(name, columns)
        found += made
        missing += refused
    return tuple(found), tuple(missing)


def _replays(rule: Rule, columns: Columns) -> int:
    """The number of traces that the loop must replay for this rule."""
    return 0 if rule.has_array_form else len(columns) * sum(1 for _ in variants(rule))


def _sweep_rule(name: str, rule: Rule, decide: Decide) -> tuple[list[Setting], list[Undecided]]:
    made: list[Setting] = []
    refused: dict[tuple[str, str], list[float]] = {}
    for value, one in variants(rule):
        try:
            made.append(Setting(name, rule.main if value is not None else None, value, decide(one)))
        except (NotRecorded, UsageError) as error:
            refused.setdefault((error.message, error.hint), []).extend([] if value is None else [value])
    if made:
        return made, [Undecided(name, why, hint, tuple(values)) for (why, hint), values in refused.items()]
    return [], [Undecided(name, *reason) for reason in list(refused)[:1]]


def variants(rule: Rule) -> Iterator[tuple[float | None, Rule]]:
    """The rule at every value of its main parameter; an integer parameter gets integers."""
    if not rule.main or not rule.grid:
        yield None, rule
        return
    whole = isinstance(getattr(rule, rule.main), int)
    for value in rule.grid:
        yield value, replace(rule, **{rule.main: int(value) if whole else value})


def _sweep_budget(name: str, columns: Columns) -> tuple[list[Setting], list[Undecided]]:
    """The curve that rules must beat: thinking cut at smaller budgets, each answered by the probe there."""
    steps = columns.steps
    if len(steps) >= MAX_BUDGETS:
        steps = steps[np.unique(np.linspace(0, len(steps) - 1, MAX_BUDGETS - 1).round().astype(np.int64))]
    made, missing = [], []
    for budget in (*steps.tolist(), columns.limit):
        try:
            made.append(Setting(name, "budget", budget, at_budget(columns, budget)))
        except NotRecorded:
            missing.append(float(budget))
    why = "At these budgets some traces have no probe to answer with."
    return made, [Undecided(name, why, "Record them with `cgr probe`.", tuple(missing))] if missing else []


def points(paired: Paired, values: Sequence[float | None], penalties: Sequence[float]) -> tuple[Point, ...]:
    """The numbers of each setting, the baseline first. `values`: the value of the parameter in each."""
    grades = [paired.total.grade(penalty).tolist() for penalty in penalties]
    grade_intervals = [intervals(paired.draws.grade(penalty)) for penalty in penalties]
    return tuple(
        Point(
            value=value,
            **asdict(score),
            net_tokens=score.thinking_tokens + score.probe_tokens,
            grade=tuple(grade[place] for grade in grades),
            ci95_grade=tuple(span[place] for span in grade_intervals),
            gave_up=float(paired.decided[place].gave_up[paired.traces].mean()),
        )
        for place, (value, score) in enumerate(zip(values, paired.all, strict=True))
    )
