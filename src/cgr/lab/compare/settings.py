"""The settings of a comparison: every rule at every value of its main parameter, the value that each rule is shown at, and
which rule is best.

Values are chosen on some questions and shown on others: among many values, one is always lucky.

A frontier is the upper hull of a rule's settings, of the baseline (all tokens, its accuracy) and of nothing (no tokens, no
answer): the accuracy that is reached if two settings are mixed at random. Its axis is the share of the baseline's tokens
that is spent, probes included, from 0 to 1. After the best setting it stays level. The area under it is the accuracy
averaged over all shares; for the baseline alone it is half its accuracy. It hardly depends on how far a rule's grid
reaches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from cgr.errors import NotRecorded, UnknownName, UsageError
from cgr.lab.compare.result import ACCURACY, AREA, SAVING, Figure, Point, Undecided, Winner
from cgr.lab.decide.arrays import Decisions, at_budget
from cgr.lab.decide.columns import GOLD, Columns
from cgr.lab.score.adaptive import missed
from cgr.lab.score.bootstrap import interval, intervals
from cgr.lab.score.bounds import MARGIN
from cgr.lab.score.paired import Paired, Totals, most_saving, most_saving_within
from cgr.lab.store.config import ALL
from cgr.lab.store.needed_probes import rule_at_interval
from cgr.lab.types import Bools, Floats, Ints
from cgr.rules import Rule, known_rules
from cgr.rules import files as rule_files

Decide = Callable[[Rule], Decisions]
Rules = Sequence[str] | Mapping[str, Rule] | None
Corner = tuple[float, float, int]
By = Callable[[Totals], Floats]
NOTHING = -1  # the corner without tokens and answers
MAX_BUDGETS = 32  # points of the fixed-budget curve
TOO_SLOW = "It has no array form, and replaying it takes too long here."
TOO_SLOW_HINT = "Compare it with `cgr compare`."


@dataclass(frozen=True, eq=False)
class Setting:
    """A rule at one value of its main parameter (None: it has none), under the name that it is compared by, and its
    decisions on every trace. `allowed_loss`: see `Rule`."""

    name: str
    parameter: str | None
    value: float | None
    decided: Decisions
    allowed_loss: float | None = None


Swept = tuple[list[Setting], list[Undecided]]


def chosen_rules(rules: Rules, interval: int) -> dict[str, Rule]:
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


def sweep(name: str, rule: Rule, columns: Columns, decide: Decide, max_replays: int | None = None) -> Swept:
    """A rule at every value that the recordings can decide, and the values that they cannot. `max_replays`: the number of
    traces that the loop may replay."""
    replays = 0 if rule.has_array_form else len(columns) * sum(1 for _ in variants(rule))
    if max_replays is not None and replays > max_replays:
        return [], [Undecided(name, TOO_SLOW, TOO_SLOW_HINT)]
    made, refused = _sweep_rule(name, rule, decide)
    return _sweep_budget(name, columns) if made and rule.sweeps_budget else (made, refused)


def _sweep_rule(name: str, rule: Rule, decide: Decide) -> Swept:
    made: list[Setting] = []
    refused: dict[tuple[str, str], list[float]] = {}
    for value, one in variants(rule):
        try:
            parameter = rule.main if value is not None else None
            made.append(Setting(name, parameter, value, decide(one), rule.allowed_loss))
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


def _sweep_budget(name: str, columns: Columns) -> Swept:
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


def points(
    paired: Paired, columns: Columns, values: Sequence[float | None], penalties: Sequence[float]
) -> tuple[Point, ...]:
    """The numbers of each setting, the baseline first. `values`: the value of the parameter in each."""
    assert paired.traces is not None
    grades = [paired.total.grade(penalty).tolist() for penalty in penalties]
    grade_intervals = [intervals(paired.draws.grade(penalty)) for penalty in penalties]
    return tuple(
        Point(
            value=value,
            **asdict(score),
            net_tokens=score.thinking_tokens + score.probe_tokens,
            prefilled_net_share=score.net_share - _share(paired.decided[place].suffix_tokens, columns, paired.traces),
            **missed(columns, paired.decided[place], paired.traces).to_dict(),
            grade=tuple(grade[place] for grade in grades),
            ci95_grade=tuple(span[place] for span in grade_intervals),
            gave_up=float(paired.decided[place].gave_up[paired.traces].mean()),
        )
        for place, (value, score) in enumerate(zip(values, paired.all, strict=True))
    )


def _share(tokens: Ints, columns: Columns, traces: Bools) -> float:
    """These tokens as a share of the baseline's thinking."""
    return float(tokens[traces].sum()) / max(float(columns.natural[traces].sum()), 1.0)


@dataclass(frozen=True, eq=False)
class Choice:
    """The setting at which a rule is shown by one measure (None: all of them), and its figure there.

    `tuned`: the setting met the condition where it was chosen; `counts`: it does where it is shown. Otherwise the rule
    cannot win by this measure.
    """

    measure: str
    setting: int | None
    figure: float
    draws: Floats
    tuned: bool = True
    counts: bool = True

    def as_figure(self, value: float | None) -> Figure:
        """The entry in compare.json. `value`: of the parameter at this setting."""
        return Figure(self.measure, value, *((self.figure, interval(self.draws)) if self.counts else (None, None)))


def equal_accuracy(tuning: Paired, allowed_loss: float | None = None) -> tuple[int, bool]:
    """The setting that saves most at equal accuracy, and whether its accuracy is shown to be equal: see `most_saving`. With
    an allowed loss: the setting that saves most among those that lose no more points."""
    lows, net = tuning.lows[1:], tuning.total.net[1:]
    if allowed_loss is not None:
        place = most_saving_within(allowed_loss, tuning.total.diff_points[1:], net)
        return 1 + place, bool(lows[place] > MARGIN)
    place, equal = most_saving(lows, net)
    return 1 + place, equal


def choose(
    tuning: Paired,
    shown: Paired,
    penalties: Sequence[float],
    allowed_loss: float | None = None,
    reference: str = GOLD,
) -> tuple[Choice, ...]:
    """The choices for one rule, one for each measure. The settings are those of the rule, after the baseline. By agreement
    no rule is better than the full budget, so there is no best one."""
    saving, tuned = equal_accuracy(tuning, allowed_loss)
    holds = bool(shown.lows[saving] > MARGIN)
    path = corners(tuning.total)
    best = (_best(ACCURACY, tuning, shown, lambda totals: totals.accuracy),) if reference == GOLD else ()
    return (
        _at(SAVING, saving, shown, lambda totals: totals.net, tuned, holds),
        Choice(AREA, None, float(area(shown.total, path)), area(shown.draws, path)),
        *best,
        *(_best(f"grade p={cost:g}", tuning, shown, partial(Totals.grade, penalty=cost)) for cost in penalties if cost),
    )


def _best(measure: str, tuning: Paired, shown: Paired, by: By) -> Choice:
    """The setting with the largest value; among equals, the cheapest."""
    values, net = by(tuning.total), tuning.total.net
    best = max(range(1, len(values)), key=lambda one: (round(float(values[one]), 12), float(net[one])))
    return _at(measure, best, shown, by)


def _at(measure: str, setting: int, shown: Paired, by: By, tuned: bool = True, counts: bool = True) -> Choice:
    one = shown.only([setting])
    return Choice(measure, setting, float(by(one.total)[1]), by(one.draws)[1], tuned, counts)


def winner(measure: str, choices: Mapping[str, Choice]) -> Winner:
    """The rule with the largest figure, and the rules that do not differ from it. A rule that saves nothing does not win by
    its saving."""
    counted = [name for name, one in choices.items() if one.counts and (measure != SAVING or one.figure > 0)]
    ranked = sorted(counted, key=lambda name: -choices[name].figure)
    if not ranked:
        return Winner(measure, None)
    first, others = ranked[0], ranked[1:]
    best = choices[first]
    if not others:
        return Winner(measure, first, best.figure)
    leads = dict(zip(others, intervals(np.stack([best.draws - choices[name].draws for name in others])), strict=True))
    tied = tuple(name for name, (low, high) in leads.items() if low <= 0 <= high)
    second = others[0]
    return Winner(measure, first, best.figure, second, best.figure - choices[second].figure, leads[second], tied)


def corners(totals: Totals) -> tuple[int, ...]:
    """The settings on the frontier, from `NOTHING` to the most accurate; 0 is the baseline."""
    cost, accuracy = totals.cost.tolist(), totals.accuracy.tolist()
    points = [(x, y, one) for one, (x, y) in enumerate(zip(cost, accuracy, strict=True)) if x <= 1]
    hull: list[Corner] = []
    for point in sorted([(0.0, 0.0, NOTHING), *points], key=lambda point: point[:2]):
        while len(hull) > 1 and not _turns_down(hull[-2], hull[-1], point):
            hull.pop()
        hull.append(point)
    best = max(range(len(hull)), key=lambda place: hull[place][1])
    return tuple(corner for _, _, corner in hull[: best + 1])


def _turns_down(a: Corner, b: Corner, c: Corner) -> bool:
    return (b[0] - a[0]) * (c[1] - a[1]) < (c[0] - a[0]) * (b[1] - a[1])


def area(totals: Totals, path: Sequence[int]) -> Floats:
    """The area under the line through these settings, for the total or for each draw."""
    settings = totals.only([one for one in path if one != NOTHING])
    start = np.zeros_like(settings.cost[:1])  # in place of the baseline, which comes first
    cost, accuracy = (np.concatenate([start, values[1:]]) for values in (settings.cost, settings.accuracy))
    widths, heights = np.diff(cost, axis=0), (accuracy[1:] + accuracy[:-1]) / 2
    summed: Floats = (widths * heights).sum(axis=0) + (1 - cost[-1]) * accuracy[-1]
    return summed
