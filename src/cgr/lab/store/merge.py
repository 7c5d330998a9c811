"""Joins runs of the same configuration, made by several processes or machines, into a new run; and takes one shard of a
run."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from cgr.errors import UsageError
from cgr.lab.store import Key, OtherConfiguration, Store, codec
from cgr.lab.store.config import ProbeSet, RunConfig, differences, refuse_differences
from cgr.lab.store.listing import holds_traces
from cgr.lab.store.recorded import RecordedTrace, is_shadow
from cgr.lab.store.schema import folder_of
from cgr.lab.store.shard import Shard, missing_shards
from cgr.records import Probe, Question, Record

SAME_RUN = "Runs can be joined if model, prompt, budget and sampling are the same."
MAX_NAMED = 20  # missing shards in one note


@dataclass(frozen=True, slots=True)
class MergeCounts(Record):
    """What the new run holds. `repeated`: traces that more than one of the joined runs had. `notes`: what is missing in it,
    if shards were joined."""

    runs: int
    questions: int
    traces: int
    repeated: int
    probe_sets: tuple[str, ...]
    notes: tuple[str, ...] = ()


def merge(folders: Sequence[Path], out: Path) -> MergeCounts:
    """Write all traces and probes of these runs into a new run. A trace that several runs have must be equal in them.

    The new run is written in one transaction: it is complete, or empty. A run that is being written is read up to here.
    """
    _check_paths(folders, out)
    with ExitStack() as opened:
        stores = [opened.enter_context(Store.open(folder)) for folder in folders]
        shards, questions = _shards(stores), _all_questions(stores)
        config = _one_config(stores, shards)
        with Store.create(out, config) as target, target.at_once():
            target.add_questions(questions.values())
            merger = Merger(target)
            for store in stores:
                merger.add(store)
            notes = () if config.shard else _missing(target, shards)
            counts = (len(stores), len(target.questions()), len(target.made()), merger.repeated)
            return MergeCounts(*counts, tuple(target.probe_sets()), notes)


def take_shard(folder: Path, shard: Shard, out: Path) -> None:
    """Copy the traces of this shard, with their probes, from a whole run into a run of their own. A run that is there is
    completed. The whole run is only read, so many processes can do this at once."""
    if folder_of(out).resolve() == folder_of(folder).resolve():
        raise UsageError(f"{out} is the whole run.", "Choose another --out.")
    with Store.open(folder) as store:
        if store.config.shard:
            raise OtherConfiguration(
                f"The run in {folder} is shard {store.config.shard}, not a whole run.", "Leave out --out, or --shard."
            )
        with Store.create(out, replace(store.config, shard=str(shard))) as target, target.at_once():
            target.add_questions(store.questions())
            Merger(target).add(store, lambda key: shard.holds(*key))


class Merger:
    """Copies runs into a new one."""

    def __init__(self, target: Store) -> None:
        self.target, self.repeated = target, 0
        self._from: dict[Key, Path] = dict.fromkeys(target.made(), target.folder)
        self._seeds: dict[str, list[int]] = {}
        for question, seed in self._from:
            self._seeds.setdefault(question, []).append(seed)

    def add(self, store: Store, wanted: Callable[[Key], bool] = lambda key: True) -> None:
        """Add the traces of one run, and the probes of each of its sets; only the wanted ones."""
        names = {name: self._set_name(name, spec) for name, spec in store.probe_sets().items()}
        probed = {name: store.probed(name) for name in names}
        places: dict[Key, Key] = {}
        taken: set[Key] = set()  # by this run: its own traces are different ones, even if they are equal
        for key in filter(wanted, store.made()):
            places[key] = self._add_trace(store, key, taken)
            taken.add(places[key])
        for name, there in names.items():
            own = self.target.probed(there)
            for trace in _recorded(store, name, frozenset(filter(wanted, probed[name]))):
                seed = places[trace.question_id, trace.seed][1]
                self._add_probing(store, replace(trace, seed=seed), there, own)

    def _set_name(self, name: str, spec: ProbeSet) -> str:
        """The set with this specification in the new run; it keeps its name if that is free."""
        sets = self.target.probe_sets()
        same = next((one for one, stored in sets.items() if not differences(stored, spec)), None)
        return same or self.target.add_probe_set(spec, name if name not in sets else spec.new_name(sets))

    def _add_trace(self, store: Store, key: Key, taken: Collection[Key]) -> Key:
        """Add a trace unless the new run has it from another run; returns its question and seed there."""
        (question, seed), trace = key, store.trace(key)
        seeds = self._seeds.setdefault(question, [])
        counted = is_shadow(store.config.source)  # seeds only count requests: another trace may have this one
        candidates = [(question, one) for one in (seeds if counted else {seed} & {*seeds})]
        seconds = store._one(codec.SECONDS, *key)
        possible = (one for one in candidates if one not in taken and self._holds(one, trace))
        # two requests can be equal in everything but the time that they took
        same = next((one for one in possible if not counted or self.target._one(codec.SECONDS, *one) == seconds), None)
        if same:
            self.repeated += 1
            return same
        if seed in seeds and not counted:
            raise self._conflict(store, key, "thinking")
        added = (question, max(seeds) + 1 if seed in seeds else seed)
        self.target.add_trace(replace(trace, seed=added[1]), prompt_ids=store.prompt_ids(key), seconds=seconds)
        seeds.append(added[1])
        self._from[added] = store.folder
        return added

    def _holds(self, key: Key, trace: RecordedTrace) -> bool:
        """Whether this is the trace in the new run, whatever its seed."""
        return _without_costs(self.target.trace(key)) == _without_costs(replace(trace, seed=key[1]))

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


def _one_config(stores: Sequence[Store], shards: Sequence[Shard]) -> RunConfig:
    """The configuration of all runs; only the shard, and where the questions come from, may differ."""
    first, *others = stores
    for store in others:
        same = replace(store.config, source=first.config.source, shard=first.config.shard)
        refuse_differences(f"The run in {first.folder}", first.config, same, f"{SAME_RUN} Leave {store.folder} out.")
    sources = ", ".join(dict.fromkeys(store.config.source for store in stores if store.config.source))
    one_shard = len(shards) == len(stores) and len(set(shards)) == 1  # a copy of it
    return replace(first.config, source=sources, shard=str(shards[0]) if one_shard else "")


def _shards(stores: Sequence[Store]) -> list[Shard]:
    """The shards among the runs. Parts of different divisions are refused, and so is a trace in a shard that is not its
    own."""
    found: list[Shard] = []
    for store in stores:
        if not store.config.shard:
            continue
        shard = Shard.parse(store.config.shard)
        if found and shard.count != found[0].count:
            raise OtherConfiguration(
                f"The run in {store.folder} is shard {shard}, but another is shard {found[0]}.",
                "Join the shards of one division.",
            )
        if foreign := next((key for key in store.made() if not shard.holds(*key)), None):
            raise OtherConfiguration(
                f"Question {foreign[0]!r}, seed {foreign[1]}, in {store.folder} is not of shard {shard}.",
                "Make this shard again, with `cgr generate --shard`.",
            )
        found.append(shard)
    return found


def _missing(target: Store, shards: Sequence[Shard]) -> tuple[str, ...]:
    """A note for each shard that was not joined, for traces that no run had, and for traces without probes in a set that
    others have; none if no shard was joined."""
    if not shards:
        return ()
    count, made = shards[0].count, set(target.made())
    absent = missing_shards({*shards, *(Shard.of(*key, count) for key in made)}, count)
    names = ", ".join(map(str, absent[:MAX_NAMED])) + (" and more" if len(absent) > MAX_NAMED else "")
    notes = [f"{'Shard' if len(absent) == 1 else 'Shards'} {names} {_is(absent)} missing."] if absent else []
    seeds = {seed for _, seed in made}
    wanted = {(question.id, seed) for question in target.questions() for seed in seeds}
    lost = Counter(Shard.of(*key, count) for key in wanted - made)
    incomplete = sorted(lost.keys() - set(absent))
    notes += [f"Shard {one} is not complete; missing traces: {lost[one]}." for one in incomplete]
    for name in target.probe_sets():
        if unprobed := made - target.probed(name):
            notes.append(f"{len(unprobed)} of {len(made)} traces {_is(unprobed)} not probed in the set {name!r}.")
    return tuple(notes)


def _is(things: Collection[object]) -> str:
    return "is" if len(things) == 1 else "are"


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
