"""One engine in a process of a cluster: what it is sent, and what it sends back."""

from __future__ import annotations

import os
import socket
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from cgr.engines.base import Capabilities, Engine, ModelInfo
from cgr.engines.open import ModelOptions
from cgr.errors import CgrError
from cgr.lab.store import Key
from cgr.lab.store.config import ProbeSet, RunConfig
from cgr.lab.store.recorded import RecordedTrace
from cgr.records import Decision, Question

if TYPE_CHECKING:
    from cgr.lab.record.generate import Made

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Described:
    """What an engine says of itself once it is connected, and where it runs."""

    info: ModelInfo
    capabilities: Capabilities
    notes: tuple[str, ...]
    prober: ModelInfo | None
    machine: str
    process: int


@dataclass(frozen=True, slots=True)
class OneTrace:
    """One trace of a run, sent to an engine: what `Prober` reads of a store."""

    config: RunConfig
    recorded: RecordedTrace
    ids: tuple[int, ...]

    def trace(self, key: Key) -> RecordedTrace:
        """The trace."""
        return self.recorded

    def prompt_ids(self, key: Key) -> tuple[int, ...]:
        """The token ids of its prompt."""
        return self.ids

    def made(self) -> tuple[Key, ...]:
        """Its question and seed."""
        return ((self.recorded.question_id, self.recorded.seed),)


class EngineActor:
    """One engine in a process of the cluster. Errors for users are returned, not raised: Ray would wrap them."""

    _engine: Engine

    def __init__(self, options: ModelOptions) -> None:
        self._options = options  # the engine is made by `connect`, because an error here would end the process

    async def where(self) -> tuple[str, int]:
        """The machine and the process of the engine."""
        return socket.gethostname(), os.getpid()

    async def connect(self) -> Described | CgrError:
        """Load the model, or reach the server."""
        try:
            engine = self._engine = self._options.engine()
            await engine.connect()
        except CgrError as error:
            return error
        prober, where = engine.prober.info if engine.prober else None, await self.where()
        return Described(engine.info, engine.capabilities, engine.notes, prober, *where)

    async def call(self, method: str, value: Any) -> Any:
        """`encode`, `decode` or `prompt` of the engine."""
        return await _returned(getattr(self._engine, method)(value))

    async def trace(self, config: RunConfig, question: Question, seed: int) -> tuple[Made, int] | CgrError:
        """A new trace, and the number of tokens that were thought."""
        from cgr.lab.record.generate import generate_trace

        tokens: list[int] = []
        made = await _returned(generate_trace(self._engine, config, question, seed, tokens.append))
        return made if isinstance(made, CgrError) else (made, sum(tokens))

    async def probing(self, source: OneTrace, probe_set: ProbeSet, as_text: bool) -> tuple[Decision, int] | CgrError:
        """The probes of a trace, and the number of tokens that were read again."""
        from cgr.lab.record.prober import Prober

        tokens: list[int] = []
        prober = Prober(source, self._engine, probe_set, tokens.append, None, as_text)
        made = await _returned(prober.probe(source.made()[0]))
        return made if isinstance(made, CgrError) else (made, sum(tokens))


async def _returned(work: Awaitable[T]) -> T | CgrError:
    """The result of the work, or its error as a value."""
    try:
        return await work
    except CgrError as error:
        return error
