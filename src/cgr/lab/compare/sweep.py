"""From rules to what each comes to at every value of its main parameter; what cannot be decided is listed, and why."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from cgr.errors import NotRecorded, UsageError
from cgr.lab.compare.result import Missing
from cgr.lab.decide import arrays
from cgr.lab.decide.arrays import Decisions
from cgr.lab.decide.columns import Columns
from cgr.rules import Rule

Decide = Callable[[Rule], Decisions]
BUDGETS = 32  # of the plain curve, at most
LONG = "It has no form over whole arrays, and replaying it takes too long here."
LONG_HINT = "Compare it with `cgr compare`."


@dataclass(frozen=True, eq=False)
class Setting:
    """A rule, by the name that it is compared under, at one value of its main parameter (None: it has none), and what it
    decides on every trace."""

    name: str
    parameter: str | None
    value: float | None
    decided: Decisions


def settings(
    rules: Mapping[str, Rule], columns: Columns, decide: Decide, patience: int | None = None
) -> tuple[tuple[Setting, ...], tuple[Missing, ...]]:
    """Every rule at every value that the recordings can decide, and what is missing for the others."""
    found: list[Setting] = []
    missing: list[Missing] = []
    for name, rule in rules.items():
        if patience is not None and _replays(rule, columns) > patience:
            missing.append(Missing(name, LONG, LONG_HINT))
            continue
        made, lacks = _sweep(name, rule, decide)
        if made and rule.sweeps_budget:
            made, lacks = _budgets(name, columns)
        found += made
        missing += lacks
    return tuple(found), tuple(missing)


def _replays(rule: Rule, columns: Columns) -> int:
    """How many traces must be replayed for it, one by one."""
    return 0 if rule.has_array_form else len(columns) * sum(1 for _ in variants(rule))


def _sweep(name: str, rule: Rule, decide: Decide) -> tuple[list[Setting], list[Missing]]:
    made: list[Setting] = []
    refused: dict[tuple[str, str], list[float]] = {}
    for value, one in variants(rule):
        try:
            made.append(Setting(name, rule.main if value is not None else None, value, decide(one)))
        except (NotRecorded, UsageError) as error:
            refused.setdefault((error.message, error.hint), []).extend([] if value is None else [value])
    return made, list(_refusals(name, refused, whole=not made))


def variants(rule: Rule) -> Iterator[tuple[float | None, Rule]]:
    """The rule at every value of its main parameter; what counts something is given a whole number."""
    if not rule.main or not rule.grid:
        yield None, rule
        return
    whole = isinstance(getattr(rule, rule.main), int)
    for value in rule.grid:
        yield value, replace(rule, **{rule.main: int(value) if whole else value})


def _refusals(name: str, refused: dict[tuple[str, str], list[float]], *, whole: bool) -> Iterator[Missing]:
    """The first reason where nothing can be decided; else each, with its values."""
    for (why, hint), values in refused.items():
        yield Missing(name, why, hint, () if whole else tuple(values))
        if whole:
            return


def _budgets(name: str, columns: Columns) -> tuple[list[Setting], list[Missing]]:
    """The honest curve to beat: thinking simply cut at smaller budgets, each answered by the probe there."""
    steps = columns.steps
    if len(steps) >= BUDGETS:
        steps = steps[np.unique(np.linspace(0, len(steps) - 1, BUDGETS - 1).round().astype(np.int64))]
    made, lacking = [], []
    for budget in (*steps.tolist(), columns.limit):
        try:
            made.append(Setting(name, "budget", budget, arrays.at_budget(columns, budget)))
        except NotRecorded:
            lacking.append(float(budget))
    why = "At these budgets some traces have no probe to answer with."
    return made, [Missing(name, why, "Record them with `cgr probe`.", tuple(lacking))] if lacking else []
