"""Engines on the machines of a Ray cluster, for `cgr generate --ray` and `cgr probe --ray`.

Each engine is an actor in a process of its own, which makes whole traces, or the probes of whole traces. The process that
was called hands out the work and is the only one that writes the run. If the process of an engine ends, the engine is
replaced, and what it was making is made again by any engine: a seed belongs to a trace, not to an engine or a moment.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from cgr.engines.base import Capabilities, Engine, ModelInfo, Prompt, Sampling, Session
from cgr.engines.forwarding import ForwardingEngine
from cgr.engines.open import ModelOptions
from cgr.errors import CgrError, EngineError, UsageError
from cgr.lab.record.actor import Described, OneTrace
from cgr.lab.record.ray_cluster import Cluster, EngineEnded, Placement, reply
from cgr.lab.store import Key, Store
from cgr.lab.store.config import ProbeSet, RunConfig, same_model
from cgr.records import Conversation, Decision, Question

if TYPE_CHECKING:
    from cgr.lab.record.generate import Made

MAX_TRIES = 4  # engines that may end while they make one trace
MAX_STARTS = 3  # attempts to start an engine before its place is given up
START_LIMIT = 120.0  # seconds for a machine to start the process of an engine
LOST = "The process of an engine ended. It was replaced, and its traces were made again."


class EnginePlace:
    """A place for one engine in the cluster; the engine in it may be replaced. `ended`: why it was given up."""

    def __init__(self, start: Callable[[], Any]) -> None:
        self.start, self.busy = start, 0
        self.actor: Any = None
        self.described: Described | None = None
        self.ended: CgrError | None = None


class ClusterEngine:
    """The engines of a cluster as one engine. It opens no sessions here: `trace` and `probing` do the work whole."""

    prober: Engine | None = None

    def __init__(self, options: ModelOptions, placement: Placement) -> None:
        self._options, self._placement = options, placement
        self._cluster: Cluster | None = None
        self._places: list[EnginePlace] = []
        self._changed = asyncio.Condition()
        self._starting: set[asyncio.Task[None]] = set()
        self._first: Described | None = None
        self.replaced = 0
        self.on_lost: Callable[[str], None] = lambda note: None

    @property
    def info(self) -> ModelInfo:
        return self._described.info

    @property
    def capabilities(self) -> Capabilities:
        return self._described.capabilities

    @property
    def notes(self) -> tuple[str, ...]:
        return self._described.notes

    @property
    def engines(self) -> int:
        """The number of engines."""
        return len(self._places)

    @property
    def running(self) -> tuple[Described, ...]:
        """The engines that are ready now."""
        return tuple(place.described for place in self._places if place.described)

    @property
    def _described(self) -> Described:
        if self._first is None:
            raise EngineError("The engines of the cluster are not connected.", "Await `connect` first.")
        return self._first

    def status(self) -> str:
        """The state of the cluster in one line."""
        ready, machines = self.running, {one.machine for one in self.running}
        busy = sum(place.busy for place in self._places)
        where = f"{len(ready)} of {self.engines} engines on {len(machines)} machine{'s' * (len(machines) != 1)}"
        return f"Ray: {where}, {busy} traces in flight" + (f", {self.replaced} engines replaced" if self.replaced else "")

    async def connect(self) -> None:
        if self._first:
            return
        self._cluster = await asyncio.to_thread(Cluster.join, self._placement, self._options)
        self._places = [EnginePlace(start) for start in self._cluster.starts()]
        try:
            await asyncio.gather(*map(self._start, self._places))
        except BaseException:
            await self.close()
            raise
        if self._first and self._first.prober:
            self.prober = _Prober(self, self._first.prober)

    async def _start(self, place: EnginePlace) -> None:
        """Start the engine of a place and connect it."""
        place.actor = place.start()
        try:
            await asyncio.wait_for(reply(place.actor.where.remote()), START_LIMIT)
        except TimeoutError as error:
            raise EngineError(
                f"No machine of the cluster started an engine within {START_LIMIT:g} seconds.",
                "Check the resources of the cluster with `ray status`, or use fewer --engines.",
            ) from error
        described = await reply(place.actor.connect.remote())
        if self._first and not same_model(self._first.info, described.info):
            raise EngineError(
                f"The model on {described.machine} is not the one of the other engines.",
                "Give every machine the same files.",
            )
        self._first = self._first or described
        place.described = described
        async with self._changed:
            self._changed.notify_all()

    def _lost(self, place: EnginePlace) -> None:
        """The process of a place ended: start another one, in the background."""
        if place.described is None:
            return  # another trace has found this before
        place.described = None
        self.replaced += 1
        self.on_lost(LOST)
        task = asyncio.create_task(self._replace(place))
        self._starting.add(task)
        task.add_done_callback(self._starting.discard)

    async def _replace(self, place: EnginePlace) -> None:
        error: CgrError | None = None
        for _ in range(MAX_STARTS):
            self._kill(place)
            try:
                await self._start(place)
            except CgrError as failed:
                error = failed
            else:
                return
        place.ended = error
        async with self._changed:
            self._changed.notify_all()

    def _kill(self, place: EnginePlace) -> None:
        if place.actor is not None and self._cluster:
            self._cluster.kill(place.actor)
        place.actor = None

    async def _ready_place(self) -> EnginePlace:
        """The engine with the least work; waits while all of them are being replaced."""
        async with self._changed:
            await self._changed.wait_for(lambda: self.running or all(place.ended for place in self._places))
        found = [place for place in self._places if place.described]
        if not found:
            reason = self._places[0].ended.message if self._places and self._places[0].ended else "it is closed."
            raise EngineError(f"No engine of the cluster is left: {reason}", "Check the machines of the cluster.")
        return min(found, key=lambda place: place.busy)

    async def _call(self, method: str, *arguments: Any) -> Any:
        """The result of a method of any engine; tried again if the process of the engine ends."""
        for _ in range(MAX_TRIES):
            place = await self._ready_place()
            place.busy += 1
            try:
                return await reply(getattr(place.actor, method).remote(*arguments))
            except EngineEnded:
                self._lost(place)
            finally:
                place.busy -= 1
        raise EngineError(
            f"The processes of {MAX_TRIES} engines ended while they made this trace.", "Check their memory, and `ray logs`."
        )

    async def trace(self, config: RunConfig, question: Question, seed: int, on_tokens: Callable[[int], None]) -> Made:
        """`generate_trace` on one of the engines."""
        made, tokens = await self._call("trace", config, question, seed)
        on_tokens(tokens)
        return made  # type: ignore[no-any-return]

    async def probing(
        self, store: Store, key: Key, probe_set: ProbeSet, as_text: bool, on_tokens: Callable[[int], None]
    ) -> Decision:
        """`Prober.probe` on one of the engines."""
        source = OneTrace(store.config, store.trace(key), store.prompt_ids(key))
        made, tokens = await self._call("probing", source, probe_set, as_text)
        on_tokens(tokens)
        return made  # type: ignore[no-any-return]

    async def encode(self, text: str) -> tuple[int, ...]:
        return await self._call("call", "encode", text)  # type: ignore[no-any-return]

    async def decode(self, ids: Sequence[int]) -> str:
        return await self._call("call", "decode", tuple(ids))  # type: ignore[no-any-return]

    async def prompt(self, conversation: Conversation) -> tuple[int, ...]:
        return await self._call("call", "prompt", conversation)  # type: ignore[no-any-return]

    async def open(
        self, prompt: Prompt, sampling: Sampling, *, room: int, overlap: bool = False, wait: float | None = None
    ) -> Session:
        raise UsageError("A cluster makes whole traces and opens no session here.", "Leave out --ray.")

    async def close(self) -> None:
        """End the engines, and leave the cluster."""
        for task in self._starting:
            task.cancel()
        for place in self._places:
            self._kill(place)
        cluster, self._cluster, self._places, self._first = self._cluster, None, [], None
        if cluster:
            cluster.leave()  # not in a thread: at the end of the process no thread can be started


class _Prober(ForwardingEngine):
    """The second model of the engines: only its description is here."""

    def __init__(self, engine: Engine, info: ModelInfo) -> None:
        super().__init__(engine)
        self._info = info

    @property
    def info(self) -> ModelInfo:
        return self._info
