"""What a rule could save at most, and whether it beats thinking less: the oracle, head room, false sureness, and the fixed
budget of the same cost.

Head room and false sureness need no known answers. The oracle and the fixed budget do.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from textwrap import wrap

import numpy as np

from cgr.errors import NotRecorded
from cgr.lab.decide.arrays import Decisions, at_budget
from cgr.lab.decide.columns import Columns
from cgr.lab.score import bootstrap
from cgr.lab.score.accuracy import by_question
from cgr.lab.types import Bools, Floats, Interval, Ints
from cgr.records import Record

LEAST_HEADROOM = 0.15
MOST_FALSE_SURE, SURE = 0.05, 0.99  # of the probes at or above this certainty
NOTHING_TO_SAVE = "There is nothing to save here: head room is under 15%."
NOT_TO_BE_TRUSTED = "Certainty is not to be trusted here: false sureness at 0.99 is above 5%."


@dataclass(frozen=True, slots=True)
class Gain(Record):
    """A rule beside a fixed budget of the same mean cost. Costs are tokens a trace: thinking, and tokens that probes
    decoded. `ci95`: of the gain. `fixed_cost_for_same_accuracy`: None if no fixed budget is as accurate."""

    cost_mean: float
    accuracy: float | None
    fixed_accuracy: float | None
    gain_points: float | None
    ci95: Interval | None
    fixed_cost_for_same_accuracy: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptiveRow(Gain):
    """The same at one threshold."""

    threshold: float


@dataclass(frozen=True, slots=True)
class FalseSureRow(Record):
    """Of the closed probes at or above the threshold, the share whose answer differs from the final one of their trace.
    None: there are no such probes."""

    threshold: float
    probes: int
    share: float | None


@dataclass(frozen=True, slots=True)
class Missed(Record):
    """What a rule misses of the saving of the oracle, as shares of the baseline's thinking: thinking on traces whose final
    answer is wrong, thinking past the oracle's stop on the others, and tokens that probes decoded."""

    unsolved: float
    late: float
    probes: float


def oracle_stop(columns: Columns) -> Ints:
    """Where the oracle stops each trace: at its first probe from which on every probe and the final answer are right. A
    trace whose final answer is wrong stops at once."""
    return np.where(columns.final_right, _settled_at(columns, columns.right), 0)


def oracle_saving(columns: Columns, traces: Bools) -> float:
    """The share of the thinking of these traces that the oracle saves."""
    return 1 - float(oracle_stop(columns)[traces].sum()) / max(float(columns.natural[traces].sum()), 1.0)


def missed(columns: Columns, decided: Decisions, traces: Bools) -> Missed:
    """What this rule misses on these traces. The oracle's saving minus all three is the rule's net saving."""
    natural = max(float(columns.natural[traces].sum()), 1.0)
    wrong, right = traces & ~columns.final_right, traces & columns.final_right
    late = (decided.at - oracle_stop(columns))[right].sum()
    tokens = (decided.at[wrong].sum(), late, decided.probe_tokens[traces].sum())
    return Missed(*(float(count) / natural for count in tokens))


def headroom(columns: Columns) -> float | None:
    """The share of thinking that is saved if every trace stops at its first probe from which on all answers equal its final
    one. None if there is no probe."""
    if not columns.present.any():
        return None
    return 1 - float(_settled_at(columns, columns.agrees).sum()) / max(float(columns.natural.sum()), 1.0)


def _settled_at(columns: Columns, good: Bools) -> Ints:
    """The position of the first probe from which on all probes are good; the end of the thinking if there is none."""
    settled = np.logical_and.accumulate((good | ~columns.present)[:, ::-1], axis=1)[:, ::-1] & columns.present
    if not settled.shape[1]:
        return columns.natural
    first = columns.at[np.arange(len(columns)), settled.argmax(axis=1)]
    return np.where(settled.any(axis=1), np.minimum(first, columns.natural), columns.natural)


def false_sure(columns: Columns, threshold: float) -> FalseSureRow:
    """False sureness at this threshold."""
    sure = columns.present & columns.closed & ~columns.bound & (columns.certainty >= threshold)
    count = int(sure.sum())
    return FalseSureRow(threshold, count, float((~columns.agrees[sure]).mean()) if count else None)


def plain_verdict(headroom: float | None, sure: FalseSureRow) -> str | None:
    """What head room and false sureness say about a run, if they say that stopping early is not for it."""
    found = [NOTHING_TO_SAVE] if headroom is not None and headroom < LEAST_HEADROOM else []
    found += [NOT_TO_BE_TRUSTED] if sure.share is not None and sure.share > MOST_FALSE_SURE else []
    return " ".join(found) or None


def prospect_sentences(headroom: float | None, sure: FalseSureRow, verdict: str | None) -> tuple[str, ...]:
    """Head room and false sureness in words, and what they mean, in lines of 80 columns."""
    found = []
    if headroom is not None:
        found.append(f"Head room: {headroom:.1%} of the thinking comes after the last change of answer.")
    if sure.share is not None:
        count = f"{sure.probes:,} {'probe' if sure.probes == 1 else 'probes'}"
        found.append(f"False sureness at {sure.threshold:g}: {sure.share:.1%} of {count} differ from the final answer.")
    return *found, *wrap(verdict or "", 80)


@dataclass(frozen=True, eq=False)
class FixedBudgets:
    """The full thinking of some traces, cut at every budget on the grid and answered there. Costs count every trace,
    accuracy those with a known answer. `questions`: those that have traces. Sums are over the traces of a question."""

    columns: Columns
    traces: Bools

    @classmethod
    def of(cls, columns: Columns, traces: Bools | None = None) -> FixedBudgets:
        """The curve of these traces; by default, of all."""
        return cls(columns, np.ones(len(columns), dtype=np.bool_) if traces is None else traces)

    @cached_property
    def questions(self) -> Bools:
        """The questions that have traces here."""
        return by_question(self.columns, self.traces) > 0

    def _sums(self, values: Ints | Bools) -> Floats:
        return by_question(self.columns, values * self.traces)[self.questions]

    def _cost_and_right(self, decided: Decisions) -> tuple[Floats, Floats]:
        right = decided.right & ~decided.gave_up & self.columns.graded
        return self._sums(decided.at + decided.probe_tokens), self._sums(right)

    @cached_property
    def _curve(self) -> tuple[Floats, Floats]:
        """(questions, budgets): cost and right answers at each budget that the recording can decide, in rising order."""
        found = []
        for budget in (*self.columns.steps.tolist(), self.columns.limit):
            with suppress(NotRecorded):
                found.append(self._cost_and_right(at_budget(self.columns, budget)))
        cost, right = zip(*found, strict=True)
        return np.stack(cost, axis=1), np.stack(right, axis=1)

    def gain(self, decided: Decisions) -> Gain:
        """This rule beside the fixed budget of the same cost. There is none without known answers, with one budget only, or
        if every budget that can be decided costs more."""
        (own_cost, own_right), (cost, right) = self._cost_and_right(decided), self._curve
        traces, graded = self._sums(self.traces), self._sums(self.columns.graded)
        cost_mean = float(own_cost.sum() / traces.sum())
        if not graded.sum():
            return Gain(cost_mean, None, None, None, None, None)
        accuracy = float(own_right.sum() / graded.sum())
        if cost.shape[1] < 2:
            return Gain(cost_mean, accuracy, None, None, None, None)
        costs = cost.sum(axis=0) / traces.sum()
        needed = first_cost(costs, right.sum(axis=0) / graded.sum(), accuracy)
        if cost_mean < costs[0] - 1e-9:
            return Gain(cost_mean, accuracy, None, None, None, needed)

        def values(counts: Floats) -> Floats:
            known = np.maximum(counts @ graded, 1.0)
            fixed = interpolated(counts @ cost, (counts @ right) / known[:, None], counts @ own_cost)
            return np.stack([fixed, 100 * ((counts @ own_right) / known - fixed)], axis=1)

        fixed, points = values(np.ones((1, len(traces))))[0].tolist()
        spans = bootstrap.of_each(len(traces), values) if len(traces) > 1 else (None, None)
        return Gain(cost_mean, accuracy, fixed, points, spans[1], needed)


def interpolated(cost: Floats, accuracy: Floats, at: Floats) -> Floats:
    """The accuracy of each row's curve at this cost: linear between neighbours, level beyond the ends. Costs never fall; of
    budgets that cost the same, the largest counts."""
    rows, last = np.arange(len(cost)), cost.shape[1] - 1
    place = np.maximum((cost <= at[:, None]).sum(axis=1) - 1, 0)
    following = np.minimum(place + 1, last)
    before, after = cost[rows, place], cost[rows, following]
    share = np.maximum(at - before, 0.0) / np.where(after > before, after - before, 1.0)
    found: Floats = accuracy[rows, place] + share * (accuracy[rows, following] - accuracy[rows, place])
    return found


def first_cost(cost: Floats, accuracy: Floats, wanted: float) -> float | None:
    """The least cost at which the curve reaches this accuracy; None if it never does."""
    enough = accuracy >= wanted - 1e-12
    if not enough.any():
        return None
    place = int(np.argmax(enough))
    if not place:
        return float(cost[0])
    share = (wanted - accuracy[place - 1]) / (accuracy[place] - accuracy[place - 1])
    return float(cost[place - 1] + min(max(share, 0.0), 1.0) * (cost[place] - cost[place - 1]))


@dataclass(frozen=True)
class Prospects:
    """The numbers of a report: the gain at each threshold, head room, false sureness, and what they say in words."""

    adaptive: tuple[AdaptiveRow, ...]
    headroom: float | None
    false_sure: tuple[FalseSureRow, ...]
    verdict: str | None


def prospects(columns: Columns, decided: Mapping[float, Decisions]) -> Prospects:
    """The prospects of a run. `decided`: what the rule decides at each threshold."""
    fixed, room = FixedBudgets.of(columns), headroom(columns)
    gains = {threshold: fixed.gain(made) for threshold, made in decided.items()}
    rows = tuple(AdaptiveRow(threshold=threshold, **gain.to_dict()) for threshold, gain in gains.items())
    sure = tuple(false_sure(columns, threshold) for threshold in sorted({*decided, SURE}))
    return Prospects(rows, room, sure, plain_verdict(room, false_sure(columns, SURE)))
