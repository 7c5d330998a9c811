"""Rules that hold one number against a threshold, on whole arrays: the numbers are computed once, and held against any.

What comes of it is what the loop comes to; a property test says so for each of these rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from cgr import certainty
from cgr.lab.decide.columns import Bools, Columns, Floats, Ints
from cgr.lab.decide.replay import Decided, first_true, readable, stopped
from cgr.lab.store.recorded import RecordedTrace
from cgr.probing import ProbeSpec
from cgr.records import Probe
from cgr.rules import LevelRule, Rule, Seen


@dataclass(frozen=True, eq=False)
class Levels:
    """What the probes of every trace come to under one rule, whatever its threshold. `asked`: the probes that it makes."""

    level: Floats
    certainty: Floats
    asked: Bools


def whatever_its_threshold(rule: LevelRule) -> LevelRule:
    """The rule with its main parameter at the default: rules that share it share their levels."""
    defaults: dict[str, Any] = {one.name: one.default for one in fields(rule) if one.name == rule.main}
    return replace(rule, **defaults)


def levels(rule: LevelRule, columns: Columns, traces: Sequence[RecordedTrace], spec: ProbeSpec) -> Levels:
    """Of each probe that the rule makes; the others have none. Traces in the order of the columns."""
    asked = _asked(rule, columns)
    level, sure = np.full(columns.at.shape, np.nan), np.zeros(columns.at.shape)
    aggregate = rule.asks.over(spec).aggregate
    for row, trace in enumerate(traces):
        made = {probe.at: probe for probe in trace.probes}
        probes = [_reread(made[at], aggregate) for at in columns.at[row, asked[row]].tolist()]
        level[row, asked[row]] = rule.levels(probes)
        sure[row, asked[row]] = [probe.certainty for probe in probes]
    return Levels(level, sure, asked)


def _asked(rule: LevelRule, columns: Columns) -> Bools:
    asked = columns.present
    if rule.place is None:
        asked = asked & (columns.at % (rule.next_probe(Seen(0)) or 1) == 0)
    if rule.most_probes is not None:
        asked = asked & (np.cumsum(asked, axis=1) <= rule.most_probes)
    return asked


def _reread(probe: Probe, aggregate: str) -> Probe:
    value = certainty.aggregate(aggregate, readable(probe).probabilities)
    return probe if value == probe.certainty else replace(probe, certainty=value)


def decide_levels(rule: LevelRule, columns: Columns, found: Levels, answers: Columns | None = None) -> Decided:
    """The first probe that is enough answers; the first that is hopeless gives up. `answers`: those at the same places,
    with the thinking closed, for a rule whose probes hold none."""
    there = columns if answers is None else answers
    enough = np.asarray(rule.enough(found.level)) & found.asked & (columns.closed | (not rule.answers))
    stop = first_true(enough)
    hopeless = np.asarray(rule.hopeless(found.level, columns.at)) & found.asked
    up = first_true(hopeless)
    sure = found.certainty if answers is None else answers.certainty
    decided = stopped(replace(there, certainty=sure), np.minimum(stop, up), found.asked)
    if answers is not None:
        decided = _paid(decided, columns, answers, stop, found.asked)
    return _given_up(decided, up < stop)


def _paid(decided: Decided, probed: Columns, answers: Columns, stop: Ints, asked: Bools) -> Decided:
    """The probes that were made, and the answer that was asked for after a stop."""
    made = (np.arange(asked.shape[1]) <= stop[:, None]) & asked
    here = np.arange(asked.shape[1]) == stop[:, None]
    return replace(
        decided,
        probe_tokens=(probed.decoded * made + answers.decoded * here).sum(axis=1),
        suffix_tokens=(probed.suffix * made + answers.suffix * here).sum(axis=1),
    )


def _given_up(decided: Decided, gave_up: Bools) -> Decided:
    return replace(decided, gave_up=gave_up, sure=decided.sure & ~gave_up, right=decided.right & ~gave_up)


def is_levelled(rule: Rule) -> bool:
    """Whether this form says all of what the rule does: one that also acts at the end of thinking is left to the loop."""
    return isinstance(rule, LevelRule) and not rule.probes_at_end and not rule.inspect_every
