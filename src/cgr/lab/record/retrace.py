"""Feeds a saved trace to a live model, token by token, so that it can be probed at every cut.

To the loop this is an engine like any other: it thinks the saved tokens, and its probes are real. The cuts are in ascending
order on one session, so the model reads the trace once. An engine that can do so probes all cuts in one pass; to the loop
they look like separate probes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Protocol, cast

from cgr.engines.base import (
    Answered,
    Done,
    Engine,
    Ids,
    OnText,
    Prompt,
    Sampling,
    Session,
    Stretch,
    Written,
    is_ids,
)
from cgr.engines.forwarding import ForwardingEngine, ForwardingSession
from cgr.errors import EngineError, NotRecorded
from cgr.lab.store.recorded import RecordedTrace
from cgr.records import Conversation, Probe


class PackingEngine(Engine, Protocol):
    """An engine with `capabilities.packed`."""

    async def probe_many(
        self, prompt: Ids, trace: Ids, cuts: Ids, suffix: Ids, limit: int, done: Done, *, top: int = 0
    ) -> list[Answered]:
        """The answer at each cut of the trace."""


class RetraceEngine(ForwardingEngine):
    """An engine whose thinking is a saved trace.

    `cuts`: where it will be probed, in ascending order, if known. `final`: the recorded final answer, if it need not be
    decoded again. `generator`: the engine that generated the trace, if the probed model has another vocabulary; the trace
    is then passed on as text.
    """

    def __init__(
        self,
        engine: Engine,
        trace: RecordedTrace,
        on_tokens: Callable[[int], None] = lambda tokens: None,
        *,
        cuts: Ids = (),
        final: Probe | None = None,
        generator: Engine | None = None,
    ) -> None:
        super().__init__(engine)
        self.trace, self.final, self.generator, self.on_tokens = trace, final, generator, on_tokens
        self.packed_cuts = cuts if engine.capabilities.packed and generator is None else ()

    async def decode(self, ids: Ids) -> str:
        """The text of the whole trace, which need not be decoded, or of other tokens of the probed model."""
        return self.trace.text if tuple(ids) == self.trace.ids else await self.engine.decode(ids) if ids else ""

    async def open(
        self, prompt: Prompt, sampling: Sampling, *, room: int, overlap: bool = False, wait: float | None = None
    ) -> RetraceSession:
        session = await self.engine.open(prompt, sampling, room=room, wait=wait)
        return RetraceSession(self, session, prompt)

    async def piece(self, start: int, end: int) -> tuple[int, ...]:
        """A piece of the trace in the tokens of the probed model. A character that is cut in two goes to the next piece."""
        ids = self.trace.ids
        if self.generator is None:
            return ids[start:end]
        before, after = [(await self.generator.decode(ids[:cut])).rstrip("\ufffd") for cut in (start, end)]
        return await self.engine.encode(after[len(before) :])


class RetraceSession(ForwardingSession):
    """A session that appends the saved tokens in place of thinking."""

    def __init__(self, engine: RetraceEngine, session: Session, prompt: Prompt) -> None:
        super().__init__(session)
        self.engine, self.prompt, self.at, self.ended = engine, prompt, 0, False
        self._packed_suffix: tuple[int, ...] | None = None
        self._packed: dict[int, Answered] = {}

    async def think(self, tokens: int, *, ban_end: bool = False, on_text: OnText | None = None) -> Stretch:
        trace = self.engine.trace
        ids = trace.ids[self.at : self.at + tokens]
        await self.session.append(await self.engine.piece(self.at, self.at + len(ids)))
        self.at += len(ids)
        self.engine.on_tokens(len(ids))
        self.ended = len(ids) < tokens
        return Stretch(ids, self.ended, self.ended and trace.eos)

    async def prefetch(self, tokens: int, *, ban_end: bool = False) -> None:
        """Nothing: the tokens are known."""

    async def probe(
        self, suffix: Ids, limit: int, done: Done, guess: Ids = (), *, rewind: int = 0, top: int = 0
    ) -> Answered:
        at_end = self.ended or self.at == self.engine.trace.budget
        if at_end and self.engine.final is not None:
            return Answered(recorded=self.engine.final)
        if self._packed_suffix is None and self.at in self.engine.packed_cuts:
            self._packed_suffix = tuple(suffix)
            self._packed = await self._probe_all(suffix, limit, done, top)
        if tuple(suffix) == self._packed_suffix and not rewind and self.at in self._packed:
            return self._packed[self.at]
        return await self.session.probe(suffix, limit, done, guess, rewind=rewind, top=top)

    async def _probe_all(self, suffix: Ids, limit: int, done: Done, top: int) -> dict[int, Answered]:
        """The answers at all cuts, in one pass."""
        engine, cuts = cast(PackingEngine, self.engine.engine), self.engine.packed_cuts
        prompt = self.prompt if is_ids(self.prompt) else await engine.prompt(cast(Conversation, self.prompt))
        found = await engine.probe_many(prompt, self.engine.trace.ids, cuts, suffix, limit, done, top=top)
        return dict(zip(cuts, found, strict=True))

    async def append(self, ids: Ids) -> None:
        raise NotRecorded("A saved trace cannot be forced to continue.", "Force it when it is generated.")

    async def write(self, limit: int) -> AsyncIterator[Written]:
        yield Written(self.engine.trace.written, stop="eos")


async def same_vocabulary(engine: Engine, trace: RecordedTrace) -> bool:
    """Whether the ids of the trace are the same text to this engine."""
    try:
        return await engine.decode(trace.ids) == trace.text
    except EngineError:
        return False
