"""Decisions on all traces of a run at once, as arrays.

A rule with an array form (`Rule.decide_all`) reads `ProbeArrays`. A property test holds these decisions equal to those of
the loop. Rules without an array form are replayed by the loop: see `replay`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from cgr import certainty
from cgr.errors import NotRecorded
from cgr.lab.decide.columns import Columns
from cgr.lab.store.recorded import RecordedTrace
from cgr.lab.types import Bools, Floats, Ints
from cgr.probing import ProbeSpec
from cgr.records import Probe
from cgr.rules import LevelRule, Rule
from cgr.rules.actions import ArrayDecisions

T = TypeVar("T")
ReadWhole = Callable[[bool], Sequence[RecordedTrace]]


@dataclass(frozen=True, eq=False)
class Decisions:
    """What a rule decided on each trace: where thinking stopped, whether a probe stopped it (`sure`), and the answer.

    Every trace has an answer, except where the rule gave up. Abstaining below a threshold is up to the scores.
    """

    at: Ints
    sure: Bools
    certainty: Floats
    closed: Bools
    right: Bools
    probe_tokens: Ints
    suffix_tokens: Ints
    gave_up: Bools

    @property
    def fired(self) -> int:
        """The number of traces that the rule stopped."""
        return int(self.sure.sum())


class ProbeArrays:
    """The probes of a run as `Rule.decide_all` reads them: arrays of shape (traces, probes).

    `spec`: how the recorded certainty was computed. `read`: the traces in the order of the columns, with token ids if it is
    given True; they are read only if a rule needs more than the columns. `answers`: the probes with the thinking closed, at
    the same positions, for rules whose own probes hold no answer.
    """

    def __init__(self, columns: Columns, spec: ProbeSpec, read: ReadWhole, answers: Columns | None = None) -> None:
        self.columns, self.spec, self.read, self.answers = columns, spec, read, answers
        self.at, self.closed, self.present = columns.at, columns.closed, columns.present
        self._kept: dict[Hashable, Any] = {}

    def kept(self, key: Hashable, compute: Callable[[], T]) -> T:
        """The result of `compute`, which is called once for each key."""
        if key not in self._kept:
            self._kept[key] = compute()
        found: T = self._kept[key]
        return found

    def certainty(self, rule: Rule) -> Floats:
        """The certainty of each probe under the aggregate of this rule."""
        aggregate = rule.probe_style.over(self.spec).aggregate
        if aggregate == self.spec.aggregate:
            return self.columns.certainty
        return self.kept(("certainty", aggregate), lambda: self._certainty(aggregate))

    def _certainty(self, aggregate: str) -> Floats:
        found = np.zeros(self.at.shape)
        for row, probes in enumerate(self._probes(self.read(False), self.present, aggregate)):
            found[row, self.present[row]] = [probe.certainty for probe in probes]
        return found

    def levels(self, rule: LevelRule, made: Bools) -> Floats:
        """The level of each probe that this rule makes, computed from the records; NaN for the others."""
        return self.kept(("levels", rule.without_main()), lambda: self._levels(rule, made))

    def _levels(self, rule: LevelRule, made: Bools) -> Floats:
        found = np.full(self.at.shape, np.nan)
        style = rule.probe_style.over(self.spec)
        for row, probes in enumerate(self._probes(self.read(style.reads == "text"), made, style.aggregate)):
            found[row, made[row]] = rule.levels(probes)
        return found

    def _probes(self, traces: Sequence[RecordedTrace], made: Bools, aggregate: str) -> Iterable[list[Probe]]:
        """Of each trace, the probes in these places, with their certainty under this aggregate."""
        for row, trace in zip(range(len(self.columns)), traces, strict=True):
            by_position = {probe.at: probe for probe in trace.probes}
            yield [_with_certainty(by_position[at], aggregate) for at in self.at[row, made[row]].tolist()]

    @property
    def tops(self) -> list[tuple[float, ...]]:
        """Of each trace and thinking token, the mean of the 20 highest log-probabilities."""
        traces = self.read(True)
        if any(len(trace.tops) != trace.thinking_tokens for trace in traces):
            raise NotRecorded(
                "The log-probabilities of the thinking were not recorded, and the rule needs them.",
                "Make the run with them: cgr generate --logprobs ...",
            )
        return [trace.tops for trace in traces]

    @property
    def first_traces(self) -> list[int]:
        """The first trace of each question."""
        return [int(row) for row in np.unique(self.columns.question, return_index=True)[1]]


def decide_arrays(rule: Rule, probes: ProbeArrays) -> Decisions:
    """What a rule with an array form decides."""
    found: ArrayDecisions | None = rule.decide_all(probes)
    if found is None:
        return at_end(probes.columns)
    if found.given_up_at is not None:
        return _without_probes(probes.columns, found.given_up_at)
    stop, give_up = first_true(found.stops), first_true(found.gives_up)
    last = np.minimum(stop, give_up)
    _check_bounds(rule, probes, found.made, last)
    sure = probes.certainty(rule) if probes.answers is None else probes.answers.certainty
    decided = stopped(replace(probes.answers or probes.columns, certainty=sure), last, found.made)
    if found.interval is not None:
        _check_grid(probes, found.interval, decided.at)
    if probes.answers is not None:
        decided = _with_answer_cost(decided, probes.columns, probes.answers, stop, found.made)
    gave_up = give_up < stop
    return replace(decided, gave_up=gave_up, sure=decided.sure & ~gave_up, right=decided.right & ~gave_up)


def first_sure(columns: Columns, threshold: float) -> Decisions:
    """Stop at the first recorded probe, at any position, whose answer closed and whose certainty reaches the threshold."""
    enough = (columns.certainty >= threshold) & columns.present
    stop, undecided = first_true(enough & columns.closed), first_true(enough & columns.bound)
    if (undecided < stop).any():
        trace = int(np.argmax(undecided < stop))
        raise _bound_probe(columns, trace, int(undecided[trace]))
    return stopped(columns, stop, columns.present)


def stopped(columns: Columns, stop: Ints, made: Bools) -> Decisions:
    """Each trace answered by the probe at this index, or by its final answer where there is none. `made`: the probes that
    are paid, if they are not after the stop."""
    width = columns.at.shape[1]
    sure = stop < width
    if not width:
        return at_end(columns)
    rows, probe = np.arange(len(columns)), np.minimum(stop, width - 1)
    paid = (np.arange(width) <= stop[:, None]) & made
    return Decisions(
        at=np.where(sure, columns.at[rows, probe], columns.natural),
        sure=sure,
        certainty=np.where(sure, columns.certainty[rows, probe], columns.final_certainty),
        closed=np.where(sure, columns.closed[rows, probe], columns.final_closed),
        right=np.where(sure, columns.right[rows, probe], columns.final_right),
        probe_tokens=(columns.decoded * paid).sum(axis=1),
        suffix_tokens=(columns.suffix * paid).sum(axis=1),
        gave_up=np.zeros(len(columns), dtype=np.bool_),
    )


def first_true(flags: Bools) -> Ints:
    """The first column that is true in each row; the number of columns where none is."""
    width = flags.shape[1]
    if not width:
        return np.zeros(len(flags), dtype=np.int64)
    first: Ints = np.where(flags.any(axis=1), flags.argmax(axis=1), width)
    return first


def at_end(columns: Columns) -> Decisions:
    """The baseline: every trace is answered at its end, without probes."""
    return _without_probes(columns, np.full(len(columns), -1, dtype=np.int64))


def _without_probes(columns: Columns, given_up_at: Ints) -> Decisions:
    """Every trace answered at its end, except those that were given up at a position (-1: not)."""
    gave_up, nothing = given_up_at >= 0, np.zeros(len(columns), dtype=np.int64)
    return Decisions(
        at=np.where(gave_up, given_up_at, columns.natural),
        sure=np.zeros(len(columns), dtype=np.bool_),
        certainty=np.where(gave_up, 0.0, columns.final_certainty),
        closed=columns.final_closed & ~gave_up,
        right=columns.final_right & ~gave_up,
        probe_tokens=nothing,
        suffix_tokens=nothing,
        gave_up=gave_up,
    )


def at_budget(columns: Columns, budget: int) -> Decisions:
    """The baseline under a smaller budget: answered by the probe at its end, or by the final answer if thinking ended
    before."""
    if budget >= columns.limit:
        return at_end(columns)
    probe = columns.on_grid(np.array([budget], dtype=np.int64))[:, 0]
    ended = columns.natural < budget
    if (missing := ~ended & (probe < 0)).any():
        raise _not_recorded(columns, int(np.argmax(missing)), f"a probe at token {budget}")
    bound = ~ended & columns.bound[np.arange(len(columns)), np.where(ended, 0, probe)] if columns.at.size else ended & False
    if bound.any():
        trace = int(np.argmax(bound))
        raise _bound_probe(columns, trace, int(probe[trace]))
    unpaid = np.zeros(columns.at.shape, dtype=np.bool_)
    answered = stopped(columns, np.where(ended, columns.at.shape[1], probe), unpaid)
    return replace(answered, sure=np.zeros(len(columns), dtype=np.bool_))


def readable(probe: Probe) -> Probe:
    """The probe with its certainty as its only probability, if it was imported without probabilities."""
    return probe if probe.probabilities or not probe.certainty else replace(probe, probabilities=(probe.certainty,))


def _with_certainty(probe: Probe, aggregate: str) -> Probe:
    value = certainty.aggregate(aggregate, readable(probe).probabilities)
    return probe if value == probe.certainty else replace(probe, certainty=value)


def _with_answer_cost(decided: Decisions, probed: Columns, answers: Columns, stop: Ints, made: Bools) -> Decisions:
    """The cost of the probes, and of the answer that was asked for after a stop."""
    paid, answer = (np.arange(made.shape[1]) <= stop[:, None]) & made, np.arange(made.shape[1]) == stop[:, None]
    return replace(
        decided,
        probe_tokens=(probed.decoded * paid + answers.decoded * answer).sum(axis=1),
        suffix_tokens=(probed.suffix * paid + answers.suffix * answer).sum(axis=1),
    )


def _check_bounds(rule: Rule, probes: ProbeArrays, made: Bools, last: Ints) -> None:
    """Raise `NotRecorded` if a probe matters whose decoding stopped early, so that its certainty is only a bound."""
    columns, style = probes.columns, rule.probe_style.over(probes.spec)
    if style.reads == "entropy" or not columns.bound.any():
        return
    undecided = columns.bound & made
    if style.aggregate in certainty.FALLING and rule.sure_at is not None:
        undecided &= probes.certainty(rule) >= rule.sure_at
    first = first_true(undecided)
    if (matters := (first <= last) & (first < made.shape[1])).any():
        trace = int(np.argmax(matters))
        raise _bound_probe(columns, trace, int(first[trace]))


def _check_grid(probes: ProbeArrays, interval: int, stopped_at: Ints) -> None:
    """Raise `NotRecorded` if a probe is missing at a multiple of the interval, up to the stop."""
    columns = probes.columns
    grid = np.arange(interval, columns.limit, interval, dtype=np.int64)
    missing = (grid <= stopped_at[:, None]) & (grid < columns.budget[:, None]) & (columns.on_grid(grid) < 0)
    if missing.any():
        trace, step = np.argwhere(missing)[0]
        raise _not_recorded(columns, int(trace), f"a probe at token {grid[step]}")


def _bound_probe(columns: Columns, trace: int, probe: int) -> NotRecorded:
    bound = columns.certainty[trace, probe]
    where = f"the end of the probe at token {columns.at[trace, probe]} (its certainty is at most {bound:.3g})"
    return _not_recorded(columns, trace, where)


def _not_recorded(columns: Columns, trace: int, what: str) -> NotRecorded:
    question, seed = columns.questions[columns.question[trace]], columns.seeds[columns.seed[trace]]
    return NotRecorded(
        f"Question {question!r}, seed {seed}: {what} was not recorded.",
        "Record it with `cgr probe`, or use a rule and a threshold that the recording can decide.",
    )
