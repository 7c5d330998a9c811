"""Every rule on the same traces: each reads the probes that were recorded for it, and says by name what is missing.

Whatever a rule's own way of asking, an answer at the end of the thinking is the run's own: rules differ in when they stop,
and are compared on nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from cgr.errors import NotRecorded
from cgr.lab.decide import arrays as levelled
from cgr.lab.decide import deepconf as confidence
from cgr.lab.decide.arrays import Levels
from cgr.lab.decide.columns import Columns
from cgr.lab.decide.replay import Decided, decide, replayed
from cgr.lab.store import DEFAULT, Key, Store
from cgr.lab.store.config import NATURAL, ProbeSet, RunConfig, same_model
from cgr.lab.store.needed_probes import ProbeRequest, forces, requests_of, satisfies
from cgr.lab.store.recorded import RecordedTrace, RunInfo
from cgr.probing import ProbeSpec
from cgr.rules import DeepConf, LevelRule, Rule


@dataclass(eq=False)
class Recordings:
    """A run as rules read it. `columns` are those of the default set of probes, and `keys` the traces that are in it."""

    folder: Path
    info: RunInfo
    config: RunConfig
    sets: dict[str, ProbeSet]
    keys: frozenset[Key]
    _columns: dict[str | None, Columns] = field(default_factory=dict)
    _traces: dict[tuple[str | None, bool], list[RecordedTrace]] = field(default_factory=dict)
    _levels: dict[tuple[str, Rule], Levels] = field(default_factory=dict)
    _groups: dict[int, confidence.Groups] = field(default_factory=dict)

    @classmethod
    def of(cls, folder: Path) -> Recordings:
        with Store.open(folder) as store:
            sets, made = store.probe_sets(), frozenset(store.made())
            keys = store.probed(DEFAULT) if DEFAULT in sets else made
            return cls(folder, store.info(), store.config, sets, keys)

    @property
    def default(self) -> str | None:
        """The set that rules without a way of their own read; None if there is none."""
        return DEFAULT if DEFAULT in self.sets else None

    @cached_property
    def columns(self) -> Columns:
        return self.columns_of(self.default)

    def columns_of(self, probe_set: str | None) -> Columns:
        if probe_set not in self._columns:
            self._columns[probe_set] = Columns.of(self.traces_of(probe_set), self.info)
        return self._columns[probe_set]

    def traces_of(self, probe_set: str | None, *, whole: bool = False) -> list[RecordedTrace]:
        """The traces with the probes of this set, each with the answer at its end that is the run's own."""
        key = (probe_set, whole)
        if key not in self._traces:
            with Store.open(self.folder) as store:
                if probe_set is not None and (missing := len(self.keys - store.probed(probe_set))):
                    raise _unfinished(self.folder, probe_set, missing)
                own = {(trace.question_id, trace.seed): trace.final for trace in store.recorded(None)}
                probed = ((trace.question_id, trace.seed, trace) for trace in store.recorded(probe_set, whole=whole))
                kept = [replace(trace, final=own[name, seed]) for name, seed, trace in probed if (name, seed) in self.keys]
            self._traces[key] = kept
        return self._traces[key]

    def sets_for(self, rule: Rule) -> tuple[str, ...]:
        """The names of the sets that this rule reads."""
        return tuple(self._set_for(rule, wish) for wish in requests_of(rule))

    def _set_for(self, rule: Rule, wish: ProbeRequest) -> str:
        asked = self.sets[self.default] if self.default is not None else self.config
        serving = [
            name for name, there in self.sets.items() if same_model(asked, there) and satisfies(there, wish, self.config)
        ]
        if not serving:
            raise self._missing(rule, wish)
        return DEFAULT if DEFAULT in serving else max(serving, key=lambda name: self.sets[name].interval)

    def _missing(self, rule: Rule, wish: ProbeRequest) -> NotRecorded:
        places = {"interval": f"every {wish.interval} tokens", "start": "before any thinking"}
        where = places.get(wish.where, f"at each {wish.where}")
        what = {"text": "with what follows the answer", "entropy": "for the next token's entropy"}.get(wish.reads, "")
        way = f" after {wish.prefix!r}" if wish.prefix else " with the thinking closed" if wish.close_think else ""
        return NotRecorded(
            f"The rule {rule.name!r} needs probes {where}{way}{' ' if what else ''}{what}, which were not recorded.",
            f"Record them: cgr probe {self.folder} --for {rule.name}",
        )

    def groups(self, window: int) -> confidence.Groups:
        """The confidence of every group of so many tokens, of every trace."""
        if window not in self._groups:
            traces = self.traces_of(None, whole=True)
            if any(len(trace.tops) != trace.thinking_tokens for trace in traces):
                raise NotRecorded(
                    "The rule 'deepconf' needs the log-probabilities of the thinking, which were not recorded.",
                    "Make the run with them: cgr generate --logprobs ...",
                )
            self._groups[window] = confidence.Groups.of([trace.tops for trace in traces], window)
        return self._groups[window]

    def levels(self, probe_set: str, rule: LevelRule, spec: ProbeSpec) -> Levels:
        key = (probe_set, levelled.whatever_its_threshold(rule))
        if key not in self._levels:
            traces = self.traces_of(probe_set, whole=rule.asks.reads == "text")
            self._levels[key] = levelled.levels(rule, self.columns_of(probe_set), traces, spec)
        return self._levels[key]


def decide_rule(recordings: Recordings, rule: Rule) -> Decided:
    """What this rule comes to on every trace of the run, from the set of probes that it asks for."""
    rule = rule.within(recordings.info.budget)
    _check_forcing(recordings, rule)
    if isinstance(rule, DeepConf):
        return _deepconf(recordings, rule)
    spec = ProbeSpec(aggregate=recordings.config.asking.aggregate)
    names = recordings.sets_for(rule)
    own = names[0] if names else recordings.default
    if isinstance(rule, LevelRule) and own is not None and _whole(recordings, own):
        answers = recordings.columns_of(names[1]) if len(names) > 1 else None
        found = recordings.levels(own, rule, spec)
        return levelled.decide_levels(rule, recordings.columns_of(own), found, answers)
    whole = "token_ids" in rule.needs or rule.asks.reads == "text"
    if len(names) > 1:
        return replayed(rule, traces_for(recordings, rule), spec, recordings.traces_of(names[1]))
    return decide(rule, recordings.columns_of(own), _Later(lambda: recordings.traces_of(own, whole=whole)), spec)


def traces_for(recordings: Recordings, rule: Rule) -> list[RecordedTrace]:
    """The traces with the probes that this rule reads; what is missing is said by name."""
    names = recordings.sets_for(rule)
    whole = "token_ids" in rule.needs or rule.asks.reads == "text" or bool(rule.inspect_every)
    return recordings.traces_of(names[0] if names else recordings.default, whole=whole)


def warm_floor(recordings: Recordings, rule: DeepConf) -> float:
    """The floor that `deepconf` is given: a percentile of the lowest groups of warm-up traces, which are the first of each
    question. It needs no golds."""
    fitted = rule.within(recordings.info.budget)
    first = {trace.question_id: row for row, trace in reversed(list(enumerate(recordings.traces_of(None, whole=True))))}
    lowest = recordings.groups(fitted.window or 1).lowest[sorted(first.values())]
    known = lowest[np.isfinite(lowest)]
    return float(np.percentile(known, rule.percentile)) if len(known) else -np.inf


def _deepconf(recordings: Recordings, rule: DeepConf) -> Decided:
    groups = recordings.groups(rule.window or 1)
    floor = warm_floor(recordings, rule) if rule.floor is None else rule.floor
    return confidence.decide(groups, recordings.columns_of(None), floor)


def calibrated_threshold(recordings: Recordings, rule: Rule, epsilon: float = 0.05, questions: Sequence[str] = ()) -> float:
    """The lowest value of a rule's main parameter that is safe by conformal risk control, from the cautious end down.

    The risk of a question is the share of its traces that would be right at the full budget and are wrong here; the unit is
    the question, since traces of one question are not exchangeable with those of another. Values are taken while
    (n R + 1) / (n + 1) <= epsilon. `questions`: those to calibrate on; by default, all.
    """
    grid, main = type(rule).grid, type(rule).main
    assert main is not None
    columns = recordings.columns
    kept = [number for number, name in enumerate(columns.questions) if not questions or name in questions]
    allowed = grid[-1]
    for value in reversed(grid):
        decided = decide_rule(recordings, replace(rule, **{main: type(rule.parameters()[main])(value)}))
        lost = columns.final_right & ~decided.right
        risks = [lost[columns.question == number].mean() for number in kept]
        if (sum(risks) + 1) / (len(risks) + 1) > epsilon:
            break
        allowed = value
    return allowed


class _Later(Sequence[RecordedTrace]):
    """Traces that are read only if somebody looks at them."""

    def __init__(self, read: Callable[[], Sequence[RecordedTrace]]) -> None:
        self._read = read

    def __getitem__(self, index: int | slice) -> RecordedTrace | Sequence[RecordedTrace]:  # type: ignore[override]
        return self._read()[index]

    def __len__(self) -> int:
        return len(self._read())


def _check_forcing(recordings: Recordings, rule: Rule) -> None:
    forced = recordings.config.rule != NATURAL
    if forces(rule) and not forced:
        raise NotRecorded(
            f"The rule {rule.name!r} forces the thinking on, which traces that ended by themselves cannot show.",
            "Record a forced run: cgr generate --rule budget-forcing --probe ...",
        )
    if forced and not forces(rule):
        raise NotRecorded(
            f"The rule {rule.name!r} lets the thinking end, and in {recordings.folder} it was forced on.",
            "Ask a run that was not forced.",
        )


def _whole(recordings: Recordings, name: str) -> bool:
    """Whether every place was asked, and every answer decoded to its end: if not, the loop says what is missing."""
    return recordings.sets[name].where != "anywhere" and not recordings.columns_of(name).bound.any()


def _unfinished(folder: Path, probe_set: str, missing: int) -> NotRecorded:
    traces = "1 trace" if missing == 1 else f"{missing} traces"
    return NotRecorded(
        f"The probe set {probe_set!r} lacks {traces} of the run in {folder}.", "Give the command that made it again."
    )
