"""A recorded run in memory: its traces, its probe sets, its columns, and what each rule decides on it.

Rules differ in when they stop. The answer at the end of thinking is always the run's own, whatever probe set a rule reads.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np

from cgr.errors import NotRecorded, UnknownName
from cgr.lab.decide.arrays import Decisions, ProbeArrays
from cgr.lab.decide.columns import FINAL, GOLD, Columns
from cgr.lab.decide.forcing import as_forced
from cgr.lab.decide.replay import decide_probes
from cgr.lab.store import DEFAULT, Key, Store
from cgr.lab.store.config import Asking, ProbeRequest, ProbeSet, RunConfig, same_model
from cgr.lab.store.needed_probes import has_positions, requests_of, satisfies
from cgr.lab.store.recorded import SHADOW, RecordedTrace, RunInfo
from cgr.lab.store.schema import FILE
from cgr.lab.types import Bools
from cgr.probing import ProbeSpec, ProbeStyle
from cgr.rules import Rule

NO_PROBES_HINT = "Make them with `cgr probe {}`; traces that are shorter than its interval get none."
WITH_TEXT = "`cgr probe` can make them if the requests are recorded with `cgr serve --shadow --record-text`."
ReadTraces = Callable[[str | None, bool], Sequence[RecordedTrace]]


@dataclass(eq=False)
class Run:
    """A run in memory. Open one with `Run.open(folder)`, or make one from traces with `Run.of(traces, info)`.

    `main`: the probe set that is read unless a rule needs another; None if the run has no probes. `keys`: the question and
    the seed of each trace in it. `questions`: all questions of the run, in any probe set. `filled`: the sets that have
    probes inside the thinking. `chosen`: the caller named the main set, so no rule reads another one in its place. `read`:
    reads the traces with the probes of a set (None: without probes), with or without token ids. `folder`: the folder or the
    file that messages name. `reference`: what answers are graded by; see `by_agreement`. Traces and columns are read once
    and kept.
    """

    info: RunInfo
    config: RunConfig
    sets: Mapping[str, ProbeSet]
    main: str | None
    keys: frozenset[Key]
    questions: tuple[str, ...]
    folder: Path
    read: ReadTraces = field(repr=False)
    filled: frozenset[str] = frozenset()
    chosen: bool = False
    reference: str = GOLD
    _traces: dict[tuple[str | None, bool, bool], tuple[RecordedTrace, ...]] = field(default_factory=dict, repr=False)
    _columns: dict[int, Columns] = field(default_factory=dict, repr=False)  # by the id of kept traces
    _arrays: dict[tuple[str | None, str | None], ProbeArrays] = field(default_factory=dict, repr=False)

    @classmethod
    def open(cls, folder: Path, probe_set: str | None = None) -> Run:
        """The run in a folder. `probe_set`: the main set; by default, see `default_probe_set`."""
        with Store.open(folder) as store:
            sets, filled = store.probe_sets(), store.filled_sets()
            if probe_set is not None and probe_set not in sets:
                raise UnknownName.among("probe set", probe_set, sets)
            main = probe_set or default_probe_set(sets, filled)
            made, info = store.made(), store.info(main or DEFAULT)
            keys = frozenset(made) if main is None else store.probed(main)
            names = tuple(dict.fromkeys(question for question, _ in made))
            read, chosen = partial(_read, folder), probe_set is not None
            return cls(info, store.config, sets, main, keys, names, folder, read, filled, chosen)

    @classmethod
    def of(cls, traces: Sequence[RecordedTrace], info: RunInfo, aggregate: str = ProbeSpec().aggregate) -> Run:
        """A run of these traces, which are not in a store. Their probes are its only probe set."""
        asking = Asking(aggregate=aggregate)
        config = RunConfig(budget=info.budget, interval=info.interval, asking=asking)
        sets = {DEFAULT: ProbeSet("interval" if info.interval >= 1 else "anywhere", info.interval, asking)}
        keys = frozenset(map(key_of, traces))
        names = tuple(dict.fromkeys(trace.question_id for trace in traces))
        filled = frozenset({DEFAULT} if any(trace.probes for trace in traces) else ())
        return cls(info, config, sets, DEFAULT, keys, names, Path(info.name), lambda name, whole: traces, filled)

    def only(self, questions: Bools) -> Run:
        """The same run with some of its questions. `questions`: a flag for each of `columns().questions`."""
        names = {name for name, wanted in zip(self.columns().questions, questions, strict=True) if wanted}

        def read(probe_set: str | None, whole: bool) -> Sequence[RecordedTrace]:
            return [trace for trace in self._recorded(probe_set, whole) if trace.question_id in names]

        keys = frozenset(key for key in self.keys if key[0] in names)
        return replace(self, keys=keys, read=read, _traces={}, _columns={}, _arrays={})

    @property
    def has_golds(self) -> bool:
        """Whether the gold answer of any question is known."""
        return any(trace.gold is not None for trace in self._recorded(None, False))

    def by_agreement(self) -> Run:
        """The same run, where an answer is right if it agrees with the final one of its trace. It needs no gold answers."""
        return replace(self, reference=FINAL, _columns={}, _arrays={})

    def traces(self, probe_set: str | None = None, *, whole: bool = False) -> tuple[RecordedTrace, ...]:
        """The traces with the probes of this set (by default the main one). `whole`: with token ids and probe tokens."""
        return self._recorded(probe_set or self.main, whole)

    def columns(self, probe_set: str | None = None) -> Columns:
        """The same traces as arrays."""
        return self._as_columns(self.traces(probe_set))

    def spec(self, probe_set: str | None = None) -> ProbeSpec:
        """How the certainty of this set's probes is computed from their probabilities."""
        name = probe_set or self.main
        asking = self.sets[name].asking if name else self.config.asking
        return ProbeSpec(aggregate=asking.aggregate)

    @property
    def interval(self) -> int:
        """The distance between the probes of the main set; at irregular positions, the median of all distances."""
        if self.info.interval >= 1:
            return self.info.interval
        columns = self.columns()
        distances = np.diff(columns.at, axis=1, prepend=0)[columns.present]
        return max(1, int(np.median(distances))) if distances.size else self.config.probe_interval

    @property
    def left_out(self) -> int:
        """The number of traces of the run that are not in the main set: its probing was not finished, or chose some."""
        return len(self._recorded(None, False)) - len(self.keys)

    def sets_for(self, rule: Rule) -> tuple[str, ...]:
        """The names of the probe sets that this rule reads; `NotRecorded` says what is missing."""
        requests = requests_of(rule)
        if not requests:
            return ()
        own, *others = requests
        if self.main is not None and self._main_serves(rule, own):
            first = self.main
        elif self.chosen:
            raise _other_probes(self, rule, own)
        else:
            first = self._set_for(rule, own)
        return first, *(self._set_for(rule, request) for request in others)

    def rule_traces(self, probe_set: str | None = None, *, whole: bool = False) -> tuple[RecordedTrace, ...]:
        """The traces of the main set as rules read them: with the probes of this set and the final answer of the run."""
        return self._recorded(probe_set or self.main, whole, own_final=True)

    def rule_columns(self, probe_set: str | None = None) -> Columns:
        """The same traces as arrays."""
        return self._as_columns(self.rule_traces(probe_set))

    def arrays(self, probe_set: str | None = None, answers: str | None = None) -> ProbeArrays:
        """The same traces as rules with an array form read them. `answers`: the set with the thinking closed, for rules
        whose own probes hold no answer; it must have the same positions."""
        key = (probe_set or self.main, answers)
        if key not in self._arrays:
            columns, closed = self.rule_columns(probe_set), self.rule_columns(answers) if answers else None
            aligned = closed is not None and np.array_equal(columns.at, closed.at) and not closed.bound.any()
            read = partial(self._recorded, key[0], own_final=True)
            irregular = key[0] is not None and self.sets[key[0]].where != "interval"
            answered = closed if aligned else None
            self._arrays[key] = ProbeArrays(columns, self.spec(probe_set), read, answered, irregular=irregular)
        return self._arrays[key]

    def decide(self, rule: Rule) -> Decisions:
        """What this rule decides on every trace, with the probe sets that it needs; `NotRecorded` says what is missing."""
        rule = as_forced(rule, self.config, self.folder)
        rule = rule.within(self.info.budget)
        if "thinking_logprobs" in rule.needs:
            _ = self.arrays().tops
            rule = rule.on_recording(self.arrays())
        own, answers = (*self.sets_for(rule), None, None)[:2]
        probes = self.arrays(own, answers)
        if own is not None and own not in self.filled and rule.thinks:
            raise NotRecorded(f"No probe was recorded in {self.folder}.", NO_PROBES_HINT.format(self.folder))
        decided = decide_probes(rule, probes, self.rule_traces(answers) if answers else None)
        return decided if self.reference == GOLD else replace(decided, right=decided.agrees)

    def _recorded(self, name: str | None, whole: bool, *, own_final: bool = False) -> tuple[RecordedTrace, ...]:
        key = (name, whole, own_final)
        if key not in self._traces:
            found = self._with_own_final(name, self._recorded(name, whole)) if own_final else self.read(name, whole)
            self._traces[key] = tuple(found)
        return self._traces[key]

    def _with_own_final(self, name: str | None, traces: tuple[RecordedTrace, ...]) -> tuple[RecordedTrace, ...]:
        if missing := len(self.keys - set(map(key_of, traces))):
            count = "1 trace" if missing == 1 else f"{missing} traces"
            sentence = f"The probe set {name!r} lacks {count} of the run in {self.folder}."
            raise NotRecorded(sentence, "Run the command that made it again.")
        own = {key_of(trace): trace.final for trace in self._recorded(None, False)}
        if all(trace.final == own[key_of(trace)] for trace in traces) and len(traces) == len(self.keys):
            return traces
        return tuple(replace(trace, final=own[key_of(trace)]) for trace in traces if key_of(trace) in self.keys)

    def _as_columns(self, traces: tuple[RecordedTrace, ...]) -> Columns:
        if id(traces) not in self._columns:
            columns = Columns.of(traces, self.info)
            self._columns[id(traces)] = columns if self.reference == GOLD else columns.by_agreement()
        return self._columns[id(traces)]

    def _main_serves(self, rule: Rule, request: ProbeRequest) -> bool:
        """Whether the main set has the probes of this rule. A rule without a probe style of its own takes them as they are
        asked there, and probes at marks are irregular positions to it."""
        stored = self.sets[str(self.main)]
        if not rule.thinks or rule.place is not None or replace(rule.probe_style, aggregate=None) != ProbeStyle():
            return satisfies(stored, request, self.config)
        if stored.where == "interval":
            return _has_answers(stored) and has_positions(stored, request, self.config)
        return _has_answers(stored) and rule.any_position

    def _set_for(self, rule: Rule, request: ProbeRequest) -> str:
        prober = self.sets[self.main] if self.main is not None else self.config
        of_prober = {name: one for name, one in self.sets.items() if same_model(prober, one)}
        suitable = [name for name, one in of_prober.items() if satisfies(one, request, self.config)]
        if not suitable:
            raise _missing(self, rule, request)
        return max(suitable, key=lambda name: (name in self.filled, name == DEFAULT, self.sets[name].interval))


def default_probe_set(sets: Mapping[str, ProbeSet], filled: Collection[str] = ()) -> str | None:
    """The set that is read unless another is named; None if there is none. `filled`: the sets that have probes.

    It is the set called `default`. If that has no probes or there is none, the first filled set with answers on a grid, or
    else at irregular positions. If there is none either: `default`, or the first set.
    """
    for suits in (lambda name: name == DEFAULT, lambda name: is_grid(sets[name]), lambda name: is_irregular(sets[name])):
        if found := next((name for name in sets if name in filled and suits(name)), None):
            return found
    return DEFAULT if DEFAULT in sets else next(iter(sets), None)


def is_grid(probe_set: ProbeSet) -> bool:
    """Whether these probes give answers at every multiple of an interval."""
    return probe_set.where == "interval" and probe_set.interval >= 1 and probe_set.asking.reads == "answer"


def is_irregular(probe_set: ProbeSet) -> bool:
    """Whether these probes give answers at irregular positions."""
    return probe_set.where == "anywhere" and probe_set.asking.reads == "answer"


def key_of(trace: RecordedTrace) -> Key:
    """What identifies a trace in a run: its question and its seed."""
    return trace.question_id, trace.seed


def _read(folder: Path, probe_set: str | None, whole: bool) -> Sequence[RecordedTrace]:
    with Store.open(folder) as store:
        return list(store.recorded(probe_set, whole=whole))


def _missing(run: Run, rule: Rule, request: ProbeRequest) -> NotRecorded:
    return NotRecorded(
        f"The rule {rule.name!r} needs probes {_described(request)}, which were not recorded.",
        WITH_TEXT if run.config.source == SHADOW else f"Record them: {_record_in(run.folder)} --for {rule.name}",
    )


def _other_probes(run: Run, rule: Rule, request: ProbeRequest) -> NotRecorded:
    what = f"probes {_described(request)}"
    if not _has_answers(run.sets[str(run.main)]) and request.reads == "answer":
        what = "answers inside the thinking"
    return NotRecorded(
        f"The rule {rule.name!r} needs {what}, which the probe set {run.main!r} does not have.",
        f"Leave the probe set out, or record what the rule needs: {_record_in(run.folder)} --for {rule.name}",
    )


def _has_answers(probe_set: ProbeSet) -> bool:
    return probe_set.where != "start" and probe_set.asking.reads != "entropy"


def _described(request: ProbeRequest) -> str:
    places = {"interval": f"every {request.interval} tokens", "start": "before any thinking"}
    where = places.get(request.where, f"at each {request.where}")
    reads = {"text": " with what follows the answer", "entropy": " for the next token's entropy"}.get(request.reads, "")
    style = f" after {request.prefix!r}" if request.prefix else " with the thinking closed" if request.close_think else ""
    return f"{where}{style}{reads}"


def _record_in(run: Path) -> str:
    """The command that probes a run; a file of traces has to be imported first."""
    if not run.is_file() or run.name == FILE:
        return f"cgr probe {run}"
    return f"cgr import {run} runs/{run.stem}, then cgr probe runs/{run.stem}"
