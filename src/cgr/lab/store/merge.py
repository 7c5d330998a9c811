"""Joins runs of the same configuration, made by several processes or machines, into a new run."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from cgr.errors import UsageError
from cgr.lab.store import Key, OtherConfiguration, Store, codec
from cgr.lab.store.config import ProbeSet, RunConfig, differences, refuse_differences
from cgr.lab.store.listing import holds_traces
from cgr.lab.store.recorded import RecordedTrace
from cgr.lab.store.schema import folder_of
from cgr.records import Probe, Question, Record

SAME_RUN = "Runs can be joined if model, prompt, budget and sampling are the same."


@dataclass(frozen=True, slots=True)
class MergeCounts(Record):
    """What the new run holds. `repeated`: traces that more than one of the joined runs had."""

    runs: int
    questions: int
    traces: int
    repeated: int
    probe_sets: tuple[str, ...]


def merge(folders: Sequence[Path], out: Path) -> MergeCounts:
    """Write all traces and probes of these runs into a new run. A trace that several runs have must be equal in them.

    The new run is written in one transaction: it is complete, or empty. A run that is being written is read up to here.
    """
    _check_paths(folders, out)
    with ExitStack() as opened:
        stores = [opened.enter_context(Store.open(folder)) for folder in folders]
        config, questions = _one_config(stores), _all_questions(stores)
        with Store.create(out, config) as target, target.at_once():
            target.add_questions(questions.values())
            merger = Merger(target)
            for store in stores:
                merger.add(store)
            sets = tuple(target.probe_sets())
            return MergeCounts(len(stores), len(target.questions()), len(target.made()), merger.repeated, sets)


class Merger:
    """Copies runs into a new one."""

    def __init__(self, target: Store) -> None:
        self.target, self.repeated = target, 0
        self._from: dict[Key, Path] = {}

    def add(self, store: Store) -> None:
        """Add the traces of one run, and the probes of each of its sets."""
        names = {name: self._set_name(name, spec) for name, spec in store.probe_sets().items()}
        probed = {name: store.probed(name) for name in names}
        for key in store.made():
            self._add_trace(store, key)
        for name, there in names.items():
            own = self.target.probed(there)
            for trace in _recorded(store, name, probed[name]):
                self._add_probing(store, trace, there, own)

    def _set_name(self, name: str, spec: ProbeSet) -> str:
        """The set with this specification in the new run; it keeps its name if that is free."""
        sets = self.target.probe_sets()
        same = next((one for one, stored in sets.items() if not differences(stored, spec)), None)
        return same or self.target.add_probe_set(spec, name if name not in sets else spec.new_name(sets))

    def _add_trace(self, store: Store, key: Key) -> None:
        trace = store.trace(key)
        if key not in self._from:
            self._from[key] = store.folder
            self.target.add_trace(trace, prompt_ids=store.prompt_ids(key), seconds=store._one(codec.SECONDS, *key))
            return
        self.repeated += 1
        if _without_costs(self.target.trace(key)) != _without_costs(trace):
            raise self._conflict(store, key, "thinking")

    def _add_probing(self, store: Store, trace: RecordedTrace, name: str, own: frozenset[Key]) -> None:
        key = (trace.question_id, trace.seed)
        if key not in own:
            self.target.add_probing(key, name, trace.probes, trace.final)
        elif _without_costs(next(_recorded(self.target, name, frozenset({key})))) != _without_costs(trace):
            raise self._conflict(store, key, f"probes in the set {name!r}")

    def _conflict(self, store: Store, key: Key, what: str) -> OtherConfiguration:
        question, seed = key
        return OtherConfiguration(
            f"Question {question!r}, seed {seed}, has other {what} in {store.folder} than in {self._from[key]}.",
            "Leave one of the two runs out, or give its traces other seeds.",
        )


def _recorded(store: Store, probe_set: str, keys: frozenset[Key]) -> Iterator[RecordedTrace]:
    """The traces of this set that have these keys: a run that is being written may have got more since."""
    return (one for one in store.recorded(probe_set, whole=True) if (one.question_id, one.seed) in keys)


def _without_costs(trace: RecordedTrace) -> RecordedTrace:
    """The trace without what may differ from one machine to another though the content is the same. A log-probability of 1
    stands for NaN, which differs from itself."""
    probes, final = tuple(map(_plain, trace.probes)), _plain(trace.final)
    return replace(trace, probes=probes, final=final, logprobs=_known(trace.logprobs), tops=_known(trace.tops))


def _plain(probe: Probe) -> Probe:
    return replace(probe, seconds=0.0, prefilled=0, cached=0)


def _known(values: Sequence[float]) -> tuple[float, ...]:
    return tuple(1.0 if math.isnan(value) else value for value in values)


def _check_paths(folders: Sequence[Path], out: Path) -> None:
    if not folders:
        raise UsageError("There is no run to join.", "Give one or more: cgr merge RUN RUN --out RUN.")
    if folder_of(out).resolve() in {folder_of(folder).resolve() for folder in folders}:
        raise UsageError(f"{out} is one of the runs to join.", "Choose another --out.")
    if holds_traces(out):
        raise UsageError(f"There is already a run in {out}.", "Choose another --out.")


def _one_config(stores: Sequence[Store]) -> RunConfig:
    """The configuration of all runs; only where the questions come from may differ."""
    first, *others = stores
    for store in others:
        same_source = replace(store.config, source=first.config.source)
        refuse_differences(f"The run in {first.folder}", first.config, same_source, f"{SAME_RUN} Leave {store.folder} out.")
    sources = ", ".join(dict.fromkeys(store.config.source for store in stores if store.config.source))
    return replace(first.config, source=sources)


def _all_questions(stores: Sequence[Store]) -> Mapping[str, Question]:
    found: dict[str, tuple[Question, Path]] = {}
    for store in stores:
        for question in store.questions():
            known, folder = found.setdefault(question.id, (question, store.folder))
            if known != question:
                raise OtherConfiguration(
                    f"Question {question.id!r} is different in {store.folder} and in {folder}.",
                    "Give different questions different ids.",
                )
    return {name: question for name, (question, _) in found.items()}
