"""Decisions on all traces of a run at once, as arrays.

A rule with an array form (`Rule.decide_all`) reads `ProbeArrays`. A property test holds these decisions equal to those of
the loop. Rules without an array form are replayed by the loop: see `replay`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np

from cgr import certainty
from cgr.errors import NotRecorded
from cgr.lab.decide.columns import Columns
from cgr.lab.store.recorded import RecordedTrace, is_shadow
from cgr.lab.types import Bools, Floats, Ints
from cgr.probing import ProbeSpec
from cgr.records import Probe
from cgr.rules import LevelRule, Rule
from cgr.rules.actions import ArrayDecisions

T = TypeVar("T")
WITH_LOGPROBS = "Make the run with them: cgr generate --logprobs ..."
NOT_IN_SHADOW = "A recording of `cgr serve --shadow` never has them; `cgr generate --logprobs` records them."
ReadWhole = Callable[[bool], Sequence[RecordedTrace]]
Levels = Callable[[Sequence[Probe]], list[float]]


@dataclass(frozen=True, eq=False)
class Decisions:
    """What a rule decided on each trace: where thinking stopped, whether a probe stopped it (`sure`), and the answer.

    Every trace has an answer, except where the rule gave up. Abstaining below a threshold is up to the scores. `agrees`:
    the answer equals the one that the same trace gives at its end; False where the rule gave up.
    """

    at: Ints
    sure: Bools
    certainty: Floats
    closed: Bools
    right: Bools
    probe_tokens: Ints
    suffix_tokens: Ints
    gave_up: Bools
    agrees: Bools

    @property
    def fired(self) -> int:
        """The number of traces that the rule stopped."""
        return int(self.sure.sum())


class ProbeArrays:
    """The probes of a run as `Rule.decide_all` reads them: arrays of shape (traces, probes).

    `spec`: how the recorded certainty was computed. `read`: the traces in the order of the columns, with token ids if it is
    given True; they are read only if a rule needs more than the columns. `answers`: the probes with the thinking closed, at
    the same positions, for rules whose own probes hold no answer. `irregular`: the probes are on no grid, and a rule
    that can be decided by probes at any position reads all of them.
    """

    def __init__(
        self,
        columns: Columns,
        spec: ProbeSpec,
        read: ReadWhole,
        answers: Columns | None = None,
        *,
        irregular: bool | None = None,
    ) -> None:
        self.columns, self.spec, self.read, self.answers = columns, spec, read, answers
        self.irregular = columns.info.interval < 1 if irregular is None else irregular
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
        return self.kept(("certainty", aggregate), partial(self._values, _certainties, self.present, aggregate))

    def levels(self, rule: LevelRule, made: Bools) -> Floats:
        """The level of each probe that this rule makes, computed from the records; NaN for the others."""
        style = rule.probe_style.over(self.spec)
        compute = partial(self._values, rule.levels, made, style.aggregate, whole=style.reads == "text")
        return self.kept(("levels", rule.without_main()), compute)

    def _values(self, values: Levels, made: Bools, aggregate: str, *, whole: bool = False) -> Floats:
        """The values of the probes in these places, with their certainty under this aggregate; NaN elsewhere."""
        found = np.full(self.at.shape, np.nan)
        for row, trace in zip(range(len(self.columns)), self.read(whole), strict=True):
            by_position = {probe.at: probe for probe in trace.probes}
            places = self.at[row, made[row]].tolist()
            found[row, made[row]] = values([_with_certainty(by_position[at], aggregate) for at in places])
        return found

    @property
    def tops(self) -> list[tuple[float, ...]]:
        """Of each trace and thinking token, the mean of the 20 highest log-probabilities."""
        traces = self.read(True)
        if any(len(trace.tops) != trace.thinking_tokens for trace in traces):
            raise NotRecorded(
                "The log-probabilities of the thinking were not recorded, and the rule needs them.",
                NOT_IN_SHADOW if is_shadow(self.columns.info.source) else WITH_LOGPROBS,
            )
        return [trace.tops for trace in traces]

    @property
    def first_traces(self) -> list[int]:
        """The first trace of each question."""
        return [int(row) for row in np.unique(self.columns.question, return_index=True)[1]]


def decide_arrays(rule: Rule, probes: ProbeArrays) -> Decisions:
    """What a rule with an array form decides."""
    found: ArrayDecisions | None = rule.decide_all(probes)
    columns, answers = probes.columns, probes.answers
    if found is None:
        return at_end(columns)
    if found.given_up_at is not None:
        return _given_up(at_end(columns), found.given_up_at)
    stop, give_up = first_true(found.stops), first_true(found.gives_up)
    last = np.minimum(stop, give_up)
    _check_bounds(columns, _undecided(rule, probes, found), last)
    if found.missing_at is not None:
        _check_missing(columns, np.where(last < columns.at.shape[1], -1, found.missing_at))
    decided = stopped(replace(columns, certainty=probes.certainty(rule)), last, found.made)
    if found.interval is not None:
        _check_grid(columns, found.interval, decided.at)
    if answers is not None:
        answered = stopped(answers, last, np.arange(answers.at.shape[1]) == stop[:, None])
        probe_tokens = decided.probe_tokens + answered.probe_tokens
        suffix_tokens = decided.suffix_tokens + answered.suffix_tokens
        decided = replace(answered, probe_tokens=probe_tokens, suffix_tokens=suffix_tokens)
    gave_up = give_up < stop
    flags = {name: getattr(decided, name) & ~gave_up for name in ("sure", "right", "agrees")}
    return replace(decided, gave_up=gave_up, **flags)


def first_sure(columns: Columns, threshold: float) -> Decisions:
    """Stop at the first recorded probe, at any position, whose answer closed and whose certainty reaches the threshold."""
    enough = (columns.certainty >= threshold) & columns.present
    stop = first_true(enough & columns.closed)
    _check_bounds(columns, enough & columns.bound & ~columns.closed, stop)
    return stopped(columns, stop, columns.present)


def at_end(columns: Columns) -> Decisions:
    """The baseline: every trace is answered at its end, without probes."""
    nothing, never = np.zeros(len(columns), dtype=np.int64), np.zeros(len(columns), dtype=np.bool_)
    final = (columns.final_certainty, columns.final_closed, columns.final_right)
    return Decisions(columns.natural, never, *final, nothing, nothing, never, ~never)


def stopped(columns: Columns, stop: Ints, made: Bools) -> Decisions:
    """Each trace answered by the probe at this index, or by its final answer where there is none. `made`: the probes that
    are paid, if they are not after the stop."""
    end, width = at_end(columns), columns.at.shape[1]
    if not width:
        return end
    sure, rows, probe = stop < width, np.arange(len(columns)), np.minimum(stop, width - 1)
    paid = (np.arange(width) <= stop[:, None]) & made
    answer = {
        name: np.where(sure, getattr(columns, name)[rows, probe], getattr(end, name))
        for name in ("at", "certainty", "closed", "right", "agrees")
    }
    tokens, suffix = (columns.decoded * paid).sum(axis=1), (columns.suffix * paid).sum(axis=1)
    return replace(end, sure=sure, probe_tokens=tokens, suffix_tokens=suffix, **answer)


def _given_up(end: Decisions, at: Ints) -> Decisions:
    """Every trace answered at its end, except those that were given up at a position (-1: not)."""
    gave_up = at >= 0
    at, sure = np.where(gave_up, at, end.at), np.where(gave_up, 0.0, end.certainty)
    flags = {name: getattr(end, name) & ~gave_up for name in ("closed", "right", "agrees")}
    return replace(end, at=at, certainty=sure, gave_up=gave_up, **flags)


def first_true(flags: Bools) -> Ints:
    """The first column that is true in each row; the number of columns where none is."""
    width = flags.shape[1]
    if not width:
        return np.zeros(len(flags), dtype=np.int64)
    first: Ints = np.where(flags.any(axis=1), flags.argmax(axis=1), width)
    return first


def at_budget(columns: Columns, budget: int) -> Decisions:
    """The baseline under a smaller budget: answered by the probe there, or by the final answer if thinking ended before."""
    if budget >= columns.limit:
        return at_end(columns)
    probe = columns.on_grid(np.array([budget], dtype=np.int64))[:, 0]
    ended = columns.natural < budget
    if (missing := ~ended & (probe < 0)).any():
        raise _not_recorded(columns, int(np.argmax(missing)), f"a probe at token {budget}")
    stop, width = np.where(ended, columns.at.shape[1], probe), columns.at.shape[1]
    _check_bounds(columns, columns.bound & (np.arange(width) == stop[:, None]), stop)
    return replace(stopped(columns, stop, np.zeros_like(columns.bound)), sure=np.zeros_like(ended))


def readable(probe: Probe) -> Probe:
    """The probe with its certainty as its only probability, if it was imported without probabilities."""
    return probe if probe.probabilities or not probe.certainty else replace(probe, probabilities=(probe.certainty,))


def _certainties(probes: Sequence[Probe]) -> list[float]:
    return [probe.certainty for probe in probes]


def _with_certainty(probe: Probe, aggregate: str) -> Probe:
    value = certainty.of_probe(aggregate, readable(probe))
    return probe if value == probe.certainty else replace(probe, certainty=value)


def with_aggregate(columns: Columns, traces: Sequence[RecordedTrace], aggregate: str) -> Columns:
    """The columns of these traces with the certainty of probes and final answers under another aggregate."""
    probes = ProbeArrays(columns, ProbeSpec(), lambda whole: traces)
    finals = [certainty.of_probe(aggregate, readable(trace.final)) for trace in traces]
    values = np.nan_to_num(probes._values(_certainties, columns.present, aggregate))
    return replace(columns, certainty=values, final_certainty=np.array(finals, dtype=np.float64))


def _undecided(rule: Rule, probes: ProbeArrays, found: ArrayDecisions) -> Bools:
    """The probes whose decoding stopped early, so that their certainty is only a bound, and that may change a decision."""
    style = rule.probe_style.over(probes.spec)
    undecided: Bools = probes.columns.bound & found.made
    if style.reads == "entropy":
        return np.zeros_like(undecided)
    if undecided.any() and style.aggregate in certainty.FALLING and rule.sure_at is not None:
        whole: Bools = np.zeros_like(undecided) if found.whole is None else found.whole
        undecided &= (probes.certainty(rule) >= rule.sure_at) | whole
    return undecided


def _check_bounds(columns: Columns, undecided: Bools, last: Ints) -> None:
    """Raise `NotRecorded` if a trace has an undecided probe up to its probe with the index `last`."""
    first = first_true(undecided)
    if (matters := (first <= last) & (first < undecided.shape[1])).any():
        trace = int(np.argmax(matters))
        at, bound = columns.at[trace, first[trace]], columns.certainty[trace, first[trace]]
        raise _not_recorded(columns, trace, f"the end of the probe at token {at} (its certainty is at most {bound:.3g})")


def _check_grid(columns: Columns, interval: int, stopped_at: Ints) -> None:
    """Raise `NotRecorded` if a probe is missing at a multiple of the interval, up to the stop."""
    grid = np.arange(interval, columns.limit, interval, dtype=np.int64)
    missing = (grid <= stopped_at[:, None]) & (grid < columns.budget[:, None]) & (columns.on_grid(grid) < 0)
    if missing.any():
        trace, step = np.argwhere(missing)[0]
        raise _not_recorded(columns, int(trace), f"a probe at token {grid[step]}")


def _check_missing(columns: Columns, missing_at: Ints) -> None:
    """Raise `NotRecorded` for the first trace with a position that was not probed."""
    if (missing_at >= 0).any():
        trace = int(np.argmax(missing_at >= 0))
        raise _not_recorded(columns, trace, f"a probe at token {missing_at[trace]}")


def _not_recorded(columns: Columns, trace: int, what: str) -> NotRecorded:
    question, seed = columns.questions[columns.question[trace]], columns.seeds[columns.seed[trace]]
    return NotRecorded(
        f"Question {question!r}, seed {seed}: {what} was not recorded.",
        "Record it with `cgr probe`, or use a rule and a threshold that the recording can decide.",
    )
