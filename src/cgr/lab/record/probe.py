"""From traces to probes, after the fact: the paper's protocol.

Every saved trace is cut on its token ids, asked at each cut, and what came of it recorded. A run can hold several sets of
probes, each known by what produced it: where the cuts are, how it was asked, and which model answered.
"""

from __future__ import annotations

import asyncio
import bisect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, cast

from cgr.certainty import check as check_aggregate
from cgr.drive.driver import Driver, answer_room
from cgr.engines.base import Engine, Sampling
from cgr.errors import NotRecorded, UnknownName, UsageError
from cgr.lab.record.generate import AskEvery, prompt_text
from cgr.lab.record.jobs import Jobs
from cgr.lab.record.packed import PackedEngine, Packs
from cgr.lab.record.progress import Progress
from cgr.lab.record.retrace import RetraceEngine, reads_alike
from cgr.lab.store import Key, Store, probing_stage
from cgr.lab.store.config import WHERE, Asking, ProbeSet, RunConfig, Where, same_model
from cgr.lab.store.recorded import RecordedTrace
from cgr.probing import READS, CloseThink, Reads
from cgr.reason import Abstention
from cgr.records import Decision, Question
from cgr.rules import NoThinking, Rule, Seen
from cgr.rules.base import check_at_least_one
from cgr.rules.marks import Place, marks
from cgr.solve import Model


@dataclass(frozen=True, kw_only=True)
class AskAt(Rule):
    """Ask at these positions, decode whole answers, and never stop."""

    positions: tuple[int, ...]
    name: ClassVar[str] = "ask-at"
    needs: ClassVar[frozenset[str]] = frozenset({"logprobs"})

    def next_probe(self, seen: Seen) -> int | None:
        later = self.positions[bisect.bisect_right(self.positions, seen.at) :]
        return later[0] if later else None


@dataclass(frozen=True, slots=True)
class ProbeRequest:
    """How a run is to be probed. None means: as the run says itself."""

    where: Where = "interval"
    interval: int | None = None
    prefix: str | None = None
    close_think: CloseThink | None = None
    max_answer_tokens: int | None = None
    aggregate: str | None = None
    name: str | None = None
    reads: Reads = "answer"

    def __post_init__(self) -> None:
        if self.where not in WHERE:
            raise UnknownName.among("place to probe", self.where, WHERE)
        if self.reads not in READS:
            raise UnknownName.among("way of reading a probe", self.reads, READS)
        for what, value in (("interval", self.interval), ("longest answer", self.max_answer_tokens)):
            if value is not None:
                check_at_least_one(what, value)
        if self.aggregate is not None:
            check_aggregate(self.aggregate)

    def asking(self, own: Asking) -> Asking:
        """How it asks in a run that asks in a way of its own."""
        return Asking(
            own.prefix if self.prefix is None else self.prefix,
            self.close_think or own.close_think,
            self.max_answer_tokens or own.max_answer_tokens,
            self.aggregate or own.aggregate,
            self.reads,
        )

    def probe_set(self, config: RunConfig, engine: Engine) -> ProbeSet:
        asking = self.asking(config.asking)
        asking.spec("integer")  # refuses what cannot be asked
        interval = (self.interval or config.interval) if self.where == "interval" else 0
        return ProbeSet(self.where, interval, asking, engine.info.name, engine.info.fingerprint)


@dataclass(frozen=True, slots=True)
class Prober:
    """Asks one model about the traces of one run. `teller`: the model that thought them, where this one reads otherwise."""

    store: Store
    engine: Engine
    probe_set: ProbeSet
    on_tokens: Callable[[int], None]
    teller: Engine | None = None
    texts: dict[int, str] | None = None

    async def probe(self, key: Key) -> Decision:
        trace = self.store.trace(key)
        own = same_model(self.store.config, self.probe_set)
        question = Question(trace.question_id, trace.question, trace.gold, trace.format)
        prompt = self.store.prompt_ids(key) if own else ()
        asked = prompt or await self.engine.prompt(prompt_text(self.store.config, question))
        final = trace.final if self._keeps_final(own) else None
        rule = await self._rule(trace)
        told = self._packed(trace, rule)
        retold = RetraceEngine(told, trace, final=final, teller=self.teller, on_tokens=self.on_tokens)
        spec = self.probe_set.asking.spec(trace.format)
        room = trace.thinking_tokens + await answer_room(self.engine, spec)
        session = await retold.open(asked, Sampling(), room=room)
        driver = Driver(retold, session, spec, full=True)
        try:
            outcome = await driver.run(rule, trace.budget, Abstention())
        finally:
            await session.close()
        return _at_the_start(outcome.decision) if self.probe_set.where == "start" else outcome.decision

    def _keeps_final(self, own: bool) -> bool:
        """The answer is the generator's, whoever says when; asked for in the same way, it is there already."""
        here = replace(self.probe_set.asking, aggregate=self.store.config.asking.aggregate)
        return not own or here.reads == "entropy" or here == self.store.config.asking

    def _packed(self, trace: RecordedTrace, rule: AskEvery | AskAt | NoThinking) -> Engine:
        """The engine, told of all cuts at once where it can make use of that and reads the trace's own tokens."""
        if not self.engine.capabilities.packed or self.teller is not None or isinstance(rule, NoThinking):
            return self.engine
        end = min(trace.thinking_tokens, trace.budget - 1)
        cuts = range(rule.interval, end + 1, rule.interval) if isinstance(rule, AskEvery) else rule.positions
        return PackedEngine(cast(Packs, self.engine), trace.ids, [cut for cut in cuts if cut <= end])

    async def _rule(self, trace: RecordedTrace) -> AskEvery | AskAt | NoThinking:
        if self.probe_set.where == "interval" and trace.forced:
            return AskAt(positions=forced_cuts(trace, self.probe_set.interval))
        if self.probe_set.where == "interval":
            return AskEvery(interval=self.probe_set.interval)
        if self.probe_set.where == "start":
            return NoThinking()
        texts = [await self._text(token) for token in trace.ids]
        return AskAt(positions=marks(texts, cast(Place, self.probe_set.where)))

    async def _text(self, token: int) -> str:
        texts = self.texts if self.texts is not None else {}
        if token not in texts:
            texts[token] = await (self.teller or self.engine).decode([token])
        return texts[token]


def forced_cuts(trace: RecordedTrace, interval: int) -> tuple[int, ...]:
    """Where forced thinking is asked: at each multiple, or right after what was written over it, and at each end."""
    cuts = set(range(interval, trace.thinking_tokens + 1, interval)) | {at for at, _ in trace.forced}
    for at, count in trace.forced:
        inside = cuts & set(range(at + 1, at + count))
        cuts = cuts - inside | ({at + count} if inside else set())
    return tuple(sorted(cuts - {0}))


def _at_the_start(decision: Decision) -> Decision:
    """What was answered without thinking is a probe; the answer at the end of the thinking stays what it was."""
    assert decision.final is not None
    return replace(decision, probes=(decision.final,), final=None)


def probe(
    folder: Path,
    wish: ProbeRequest,
    model: Model,
    *,
    open_teller: Callable[[str], Model] | None = None,
    sessions: int = 1,
    progress: Progress | None = None,
) -> str:
    """Probe every trace that this set of probes lacks, and return the set's name. Interrupted, it goes on if called again.

    `open_teller` opens the model that thought the traces, by name; it is called if the one that is asked reads otherwise.
    """
    return probe_each(folder, [wish], model, open_teller=open_teller, sessions=sessions, progress=progress)[0]


def probe_each(
    folder: Path,
    wishes: Sequence[ProbeRequest],
    model: Model,
    *,
    open_teller: Callable[[str], Model] | None = None,
    sessions: int = 1,
    progress: Progress | None = None,
) -> list[str]:
    """The same for several sets, one after the other, on a model that is loaded once."""

    async def work() -> list[str]:
        async with model:
            return [
                await aprobe(folder, wish, model.engine, open_teller=open_teller, sessions=sessions, progress=progress)
                for wish in wishes
            ]

    return asyncio.run(work())


async def aprobe(
    folder: Path,
    wish: ProbeRequest,
    engine: Engine,
    *,
    open_teller: Callable[[str], Model] | None = None,
    sessions: int = 1,
    progress: Progress | None = None,
) -> str:
    """The same, for asynchronous code, on an engine with so many sessions."""
    progress = progress or Progress(quiet=True)
    with Store.open(folder, write=True) as store:
        probe_set = wish.probe_set(store.config, engine)
        check_probeable(store)
        teller = await _teller(store, engine, open_teller)
        name = progress.probe_set = store.add_probe_set(probe_set, wish.name)
        try:
            prober = Prober(store, engine, probe_set, progress.read, teller.engine if teller else None, {})
            await _probe_all(prober, name, sessions, progress)
        finally:
            if teller:
                await teller.aclose()
    return name


async def _probe_all(prober: Prober, name: str, sessions: int, progress: Progress) -> None:
    store = prober.store
    traces, probed = store.made(), store.probed(name)
    missing = [key for key in traces if key not in probed]

    def keep(key: Key, decision: Decision) -> None:
        progress.probes += len(decision.probes)
        progress.decoded += decision.probe_tokens
        progress.prefilled += sum(probe.prefilled for probe in decision.probes)
        store.add_probing(key, name, decision.probes, decision.final)

    with progress.showing("Probing", len(traces), len(probed)):
        await Jobs(store, probing_stage(name), progress, sessions).run(missing, prober.probe, keep)


def check_probeable(store: Store) -> None:
    keys = store.made()
    if not keys:
        raise NotRecorded(f"The run in {store.folder} has no traces yet.", "Make some with `cgr generate`.")
    trace = store.trace(keys[0])
    if len(trace.ids) != trace.thinking_tokens:
        raise NotRecorded(
            f"The traces in {store.folder} were imported without token ids, and cannot be cut.", "Import them with `ids`."
        )


async def _teller(store: Store, engine: Engine, open_teller: Callable[[str], Model] | None) -> Model | None:
    """The model that thought the traces, opened if the one that is asked does not share its vocabulary."""
    if same_model(store.config, engine.info) or await reads_alike(engine, store.trace(store.made()[0])):
        return None
    if open_teller is None:
        raise UsageError(
            f"{engine.info.name} reads the tokens of {store.config.model} as another text.", "Open that model too."
        )
    teller = open_teller(store.config.model)
    if not same_model(store.config, teller.engine.info):
        await teller.aclose()
        raise UsageError(
            f"The weights of {store.config.model!r} have changed since the run was made.",
            "Probe with the model that thought.",
        )
    return teller
