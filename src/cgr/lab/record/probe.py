"""Probes saved traces: the paper's protocol.

Every saved trace is cut on its token ids and probed at each cut. A run can hold several probe sets; each is identified by
what produced it: the cuts, the options of the probes, and the probed model.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar, cast

from cgr.drive.driver import Driver, answer_room
from cgr.engines.base import Engine, Prompt, Sampling
from cgr.errors import NotRecorded, UsageError
from cgr.lab.record.jobs import Jobs, Progress
from cgr.lab.record.retrace import RetraceEngine, same_vocabulary
from cgr.lab.store import Key, Store, probing_stage
from cgr.lab.store.config import ProbeRequest, ProbeSet, same_model
from cgr.lab.store.recorded import RecordedTrace
from cgr.reason import Abstention
from cgr.records import Decision, Probe
from cgr.rules import NoThinking, Rule, Seen
from cgr.rules.marks import Place, marks
from cgr.solve import Model

OpenModel = Callable[[str], Model]


@dataclass(frozen=True, kw_only=True)
class AskAt(Rule):
    """Probe at these positions, decode whole answers, and never stop."""

    positions: tuple[int, ...]
    name: ClassVar[str] = "ask-at"
    needs: ClassVar[frozenset[str]] = frozenset({"logprobs"})

    def next_probe(self, seen: Seen) -> int | None:
        later = self.positions[bisect.bisect_right(self.positions, seen.at) :]
        return later[0] if later else None


@dataclass(frozen=True, slots=True)
class Prober:
    """Makes one probe set of one run. `generator`: the model that generated the traces, if it has another vocabulary."""

    store: Store
    engine: Engine
    probe_set: ProbeSet
    on_tokens: Callable[[int], None]
    generator: Engine | None = None
    _texts: dict[int, str] = field(default_factory=dict)

    async def probe(self, key: Key) -> Decision:
        """The probes of one trace and its final answer, as the decision of a rule that never stops."""
        trace = self.store.trace(key)
        own = same_model(self.store.config, self.probe_set)
        cuts = None if self.probe_set.where == "start" else await self._cuts(trace)
        rule = NoThinking() if cuts is None else AskAt(positions=cuts)
        final = trace.final if self._keeps_final(own) else None
        engine = RetraceEngine(self.engine, trace, self.on_tokens, cuts=cuts or (), final=final, generator=self.generator)
        spec = self.probe_set.asking.spec(trace.format)
        room = trace.thinking_tokens + await answer_room(self.engine, spec)
        session = await engine.open(await self._prompt(key, trace, own), Sampling(), room=room)
        try:
            outcome = await Driver(engine, session, spec, full=True).run(rule, trace.budget, Abstention())
        finally:
            await session.close()
        if cuts is not None:
            return outcome.decision
        # an answer without thinking is a probe; the final answer of the trace stays as it was
        return replace(outcome.decision, probes=(cast(Probe, outcome.decision.final),), final=None)

    async def _prompt(self, key: Key, trace: RecordedTrace, own: bool) -> Prompt:
        """The recorded ids if the probed model is the run's own; a paired engine and other models need the text."""
        recorded = self.store.prompt_ids(key) if own and self.engine.prober is None else ()
        return recorded or self.store.config.prompt(trace.question)

    def _keeps_final(self, own: bool) -> bool:
        """Whether the recorded final answer stays: it is the generator's, and with the same options it would be equal."""
        options = replace(self.probe_set.asking, aggregate=self.store.config.asking.aggregate)
        return not own or options.reads == "entropy" or options == self.store.config.asking

    async def _cuts(self, trace: RecordedTrace) -> tuple[int, ...]:
        """The positions to probe, up to the end of the trace and below the budget."""
        if self.probe_set.where == "interval":
            positions = interval_cuts(trace, self.probe_set.interval)
        else:
            texts = [await self._text(token) for token in trace.ids]
            positions = marks(texts, cast(Place, self.probe_set.where))
        return tuple(at for at in positions if at < trace.budget)

    async def _text(self, token: int) -> str:
        if token not in self._texts:
            self._texts[token] = await (self.generator or self.engine).decode([token])
        return self._texts[token]


def interval_cuts(trace: RecordedTrace, interval: int) -> tuple[int, ...]:
    """Every multiple of the interval; in a forced trace, also each position where the thinking wanted to end.

    A cut inside an appended text moves to its end.
    """
    cuts = set(range(interval, trace.thinking_tokens + 1, interval)) | {at for at, _ in trace.forced}
    for at, count in trace.forced:
        inside = cuts & set(range(at + 1, at + count))
        cuts = cuts - inside | ({at + count} if inside else set())
    return tuple(sorted(cuts - {0}))


def probe_each(
    folder: Path,
    requests: Sequence[ProbeRequest],
    model: Model,
    *,
    open_generator: OpenModel | None = None,
    sessions: int = 1,
    progress: Progress | None = None,
) -> list[str]:
    """Make several probe sets, one after the other, with one loaded model. Returns their names.

    Only missing probes are made, so after an interruption the same call continues. `open_generator` opens the model that
    generated the traces, by name; it is called if the probed model has another vocabulary.
    """

    async def work() -> list[str]:
        return [
            await aprobe(folder, one, model.engine, open_generator=open_generator, sessions=sessions, progress=progress)
            for one in requests
        ]

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
    progress = progress or Progress(quiet=True)
    await engine.connect()
    with Store.open(folder, write=True) as store:
        probe_set = request.probe_set(store.config, engine.info)
        check_probeable(store)
        generator = await _generator(store, engine, open_generator)
        name = store.add_probe_set(probe_set, request.name)
        progress.begin_set(name)
        try:
            prober = Prober(store, engine, probe_set, progress.add_tokens, generator.engine if generator else None)
            await _probe_all(prober, name, sessions, progress)
        finally:
            if generator:
                await generator.aclose()
    return name


async def _probe_all(prober: Prober, name: str, sessions: int, progress: Progress) -> None:
    store = prober.store
    traces, probed = store.made(), store.probed(name)
    missing = [key for key in traces if key not in probed]

    def keep(key: Key, decision: Decision) -> None:
        progress.add_probes(decision.probes)
        store.add_probing(key, name, decision.probes, decision.final)

    with progress.showing("Probing", len(traces), len(probed)):
        await Jobs(store, probing_stage(name), progress, sessions).run(missing, prober.probe, keep)


def check_probeable(store: Store) -> None:
    """Raise `NotRecorded` if the run has no traces, or no token ids."""
    keys = store.made()
    if not keys:
        raise NotRecorded(f"The run in {store.folder} has no traces yet.", "Generate some with `cgr generate`.")
    trace = store.trace(keys[0])
    if len(trace.ids) != trace.thinking_tokens:
        raise NotRecorded(
            f"The traces in {store.folder} were imported without token ids and cannot be cut.", "Import them with `ids`."
        )


async def _generator(store: Store, engine: Engine, open_generator: OpenModel | None) -> Model | None:
    """The model that generated the traces, opened if the probed model has another vocabulary."""
    config = store.config
    if same_model(config, engine.info) or await same_vocabulary(engine, store.trace(store.made()[0])):
        return None
    if open_generator is None:
        raise UsageError(f"{engine.info.name} has another vocabulary than {config.model}.", "Open that model too.")
    generator = open_generator(config.model)
    await generator.engine.connect()
    if not same_model(config, generator.engine.info):
        await generator.aclose()
        raise UsageError(
            f"The weights of {config.model!r} have changed since the run was made.",
            "Use the model that generated the traces.",
        )
    return generator
