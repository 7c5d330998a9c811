"""Probes saved traces: the paper's protocol.

A run can hold several probe sets; each is identified by what produced it: the cuts, the options of the probes, and the
probed model. Sets that are made by one call share the reading of each trace.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cgr.engines.base import Engine, Sampling
from cgr.errors import CgrError, NotRecorded, UsageError
from cgr.lab.record.cluster import ClusterEngine
from cgr.lab.record.jobs import Jobs, Progress, in_tasks
from cgr.lab.record.prober import Prober
from cgr.lab.record.retrace import PlannedProbing, same_vocabulary
from cgr.lab.record.shared_reading import SharedReading, SharingEngine
from cgr.lab.store import Key, Store, probing_stage
from cgr.lab.store.config import IMPORTED, ProbeRequest, same_model
from cgr.lab.store.recorded import is_shadow
from cgr.records import Decision
from cgr.solve import Model

OpenModel = Callable[[str], Model]
CHARACTERS_PER_TOKEN = 3  # fewer than most tokenizers need for a token


def probe_each(
    folder: Path,
    requests: Sequence[ProbeRequest],
    model: Model,
    *,
    open_generator: OpenModel | None = None,
    sessions: int = 1,
    progress: Progress | None = None,
) -> list[str]:
    """Make several probe sets with one loaded model. Returns their names.

    Only missing probes are made, so after an interruption the same call continues. `open_generator` opens the model that
    generated the traces, by name; it is called if the probed model has another vocabulary.
    """

    def work() -> Coroutine[Any, Any, list[str]]:
        return aprobe_each(
            folder, requests, model.engine, open_generator=open_generator, sessions=sessions, progress=progress
        )

    return model.run(work)


async def aprobe(
    folder: Path,
    request: ProbeRequest,
    engine: Engine,
    *,
    open_generator: OpenModel | None = None,
    sessions: int = 1,
    progress: Progress | None = None,
) -> str:
    """One probe set, for asynchronous code, with this many sessions of an engine at once. Returns the set's name."""
    made = await aprobe_each(folder, [request], engine, open_generator=open_generator, sessions=sessions, progress=progress)
    return made[0]


async def aprobe_each(
    folder: Path,
    requests: Sequence[ProbeRequest],
    engine: Engine,
    *,
    open_generator: OpenModel | None = None,
    sessions: int = 1,
    progress: Progress | None = None,
) -> list[str]:
    """The same for several probe sets: the model reads each trace once for all of them. Returns their names."""
    progress = progress or Progress(quiet=True)
    await engine.connect()
    with Store.open(folder, write=True) as store:
        check_probeable(store)
        generator, as_text = await _generator(store, engine, open_generator)
        try:
            thinker = generator.engine if generator else None
            probers: dict[str, Prober] = {}
            for request in requests:
                probe_set = request.probe_set(store.config, engine.info)
                prober = Prober(store, engine, probe_set, progress.add_tokens, thinker, as_text)
                name, prober = await _begin_set(store, prober, request.name, progress)
                probers[name] = prober
            await SetsOfTraces(store, engine, probers, progress).make(sessions)
        finally:
            if generator:
                await generator.aclose()
    return [*probers]


async def _begin_set(store: Store, prober: Prober, name: str | None, progress: Progress) -> tuple[str, Prober]:
    """The name of a probe set, and its prober, once the user was told how the traces fit the model."""
    survey = await prober.survey()
    for note in survey.notes(prober.engine.info):
        progress.note(note)
    if survey.cut_short and prober.probe_set.where == "interval":  # not on a grid: some positions are missing
        prober = replace(prober, probe_set=replace(prober.probe_set, where="anywhere"))
    name = store.add_probe_set(prober.probe_set, name)
    progress.begin_set(name)
    return name, prober


@dataclass(frozen=True, slots=True)
class SetsOfTraces:
    """Several probe sets of a run, trace by trace."""

    store: Store
    engine: Engine
    probers: Mapping[str, Prober]
    progress: Progress

    async def make(self, sessions: int) -> None:
        """Make what is missing, this many traces at once."""
        missing = self._missing()
        stages = {key: [probing_stage(name) for name in names] for key, names in missing.items()}
        self.progress.follow(self.engine)
        total = len(self.store.made())
        with self.progress.showing("Probing", total, total - len(missing)):
            jobs = Jobs(self.store, stages.__getitem__, self.progress, sessions)
            await jobs.run(missing, lambda key: self._probe(key, missing[key]), self._keep)

    def _missing(self) -> dict[Key, list[str]]:
        """The sets that each trace lacks, for those that lack any."""
        there = {name: self.store.probed(name) for name in self.probers}
        lacking = {key: [name for name, probed in there.items() if key not in probed] for key in self.store.made()}
        return {key: names for key, names in lacking.items() if names}

    def _keep(self, key: Key, made: Mapping[str, Decision | CgrError]) -> None:
        for name, one in made.items():
            if isinstance(one, CgrError):
                self.store.add_failure(key, probing_stage(name), one)
            else:
                self.progress.add_probes(one.probes)
                self.store.add_probing(key, name, one.probes, one.final)

    async def _probe(self, key: Key, names: Sequence[str]) -> dict[str, Decision | CgrError]:
        """What came of each set; if none could be made, the first error is raised."""
        made: dict[str, Decision | CgrError] = {}
        together: dict[tuple[int, ...], dict[str, PlannedProbing]] = {}
        for name in names:
            prober = self.probers[name]
            try:
                if not self._shares(prober):
                    made[name] = await self._alone(key, prober)
                    continue
                planned = await prober.plan(key)
            except CgrError as error:
                made[name] = error
                continue
            if planned.known:
                made[name] = planned.known
            else:
                together.setdefault(planned.reading.ids, {})[name] = planned
        for some in together.values():
            made |= await self._in_one_reading(some)
        errors = [one for one in made.values() if isinstance(one, CgrError)]
        if len(errors) == len(made):
            raise errors[0]
        return made

    def _shares(self, prober: Prober) -> bool:
        """Whether a set can be made together with others. Packed probes read a trace once for each set; a cluster and
        probes before the thinking have sessions of their own."""
        alone = isinstance(self.engine, ClusterEngine) or self.engine.capabilities.packed
        return not alone and prober.probe_set.where != "start"

    async def _alone(self, key: Key, prober: Prober) -> Decision:
        if isinstance(self.engine, ClusterEngine):
            return await self.engine.probing(self.store, key, prober.probe_set, prober.as_text, self.progress.add_tokens)
        return await prober.probe(key)

    async def _in_one_reading(self, planned: Mapping[str, PlannedProbing]) -> dict[str, Decision | CgrError]:
        """Sets whose trace is the same to the model, on one session."""
        one = next(iter(planned.values()))
        if len(planned) == 1:
            return {name: await _or_error(self.probers[name].carry_out(one, self.engine)) for name in planned}
        room = max(each.room for each in planned.values())
        try:
            session = await self.engine.open(one.prompt, Sampling(), room=room)
        except CgrError as error:
            return dict.fromkeys(planned, error)
        shared = SharedReading(session, one.reading.ids, len(planned))
        engine, made = SharingEngine(self.engine, shared), dict[str, Decision | CgrError]()

        async def probe(name: str) -> None:
            prober = self.probers[name]
            if planned[name] is not one:  # the tokens are read once, so one of the sets counts them
                prober = replace(prober, on_tokens=_not_counted)
            made[name] = await _or_error(prober.carry_out(planned[name], engine))

        try:
            await in_tasks(planned, probe, len(planned))
        finally:
            await session.close()
        return made


async def _or_error(work: Awaitable[Decision]) -> Decision | CgrError:
    """A decision, or the error that there was instead."""
    try:
        return await work
    except CgrError as error:
        return error


def _not_counted(tokens: int) -> None:
    """For tokens that are counted elsewhere."""


def check_probeable(store: Store) -> None:
    """Raise `NotRecorded` if the run has no traces, or one of them has neither token ids nor text."""
    if not store.made():
        raise NotRecorded(f"The run in {store.folder} has no traces yet.", "Generate some with `cgr generate`.")
    if missing := store.unreadable():
        question, seed = missing[0]
        raise NotRecorded(
            f"Question {question!r}, seed {seed}: the trace has neither token ids nor text, so it cannot be cut.",
            "Record with --record-text." if is_shadow(store.config.source) else "Import it with `text` or `ids`.",
        )


def room_for(store: Store) -> int:
    """How many thinking tokens the context of a probed model should hold: the budget, or the longest text without ids."""
    return max(store.config.budget, -(-store.longest_text() // CHARACTERS_PER_TOKEN))


async def _generator(store: Store, engine: Engine, open_generator: OpenModel | None) -> tuple[Model | None, bool]:
    """The model that generated the traces, opened if the probed model has another vocabulary; and whether the text of the
    traces is encoded instead, because nobody knows that model or it is not here."""
    config, keys = store.config, store.made()
    trace = next((one for one in map(store.trace, keys) if one.ids), None)
    if trace is None or same_model(config, engine.info) or await same_vocabulary(engine, trace):
        return None, False
    if config.model == IMPORTED:  # without text, the ids must be those of the model that the user named
        return None, bool(trace.text)
    if open_generator is None or isinstance(engine, ClusterEngine):
        hint = "Open that model too." if open_generator is None else "Probe without --ray."
        raise UsageError(f"{engine.info.name} has another vocabulary than {config.model}.", hint)
    try:
        generator = open_generator(config.model)
        await generator.engine.connect()
    except UsageError:
        if not trace.text:
            raise
        return None, True
    if not same_model(config, generator.engine.info):
        await generator.aclose()
        raise UsageError(
            f"The weights of {config.model!r} have changed since the run was made.",
            "Use the model that generated the traces.",
        )
    return generator, False
