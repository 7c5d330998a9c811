"""A saved trace that is thought again, word for word, before a live model that is asked about it.

To the loop it is an engine like any other: it thinks what was thought, and its probes are real ones. The cuts come in
ascending order on one session, so the model reads the trace once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cgr.engines.base import Answered, Done, Engine, OnText, Sampling, Session, Stretch
from cgr.errors import EngineError, NotRecorded
from cgr.lab.store.recorded import RecordedTrace
from cgr.records import Probe


class RetraceEngine:
    """`final`: the answer at the end where it need not be asked for again. `teller`: who can read the trace's tokens, where
    the model that is asked has another vocabulary: it is then told the text."""

    def __init__(
        self,
        engine: Engine,
        trace: RecordedTrace,
        *,
        final: Probe | None = None,
        teller: Engine | None = None,
        on_tokens: Callable[[int], None] = lambda tokens: None,
    ) -> None:
        self.engine, self.trace, self.final, self.teller, self.on_tokens = engine, trace, final, teller, on_tokens
        self.info, self.capabilities = engine.info, engine.capabilities

    async def encode(self, text: str) -> tuple[int, ...]:
        return await self.engine.encode(text)

    async def decode(self, ids: Sequence[int]) -> str:
        return self.trace.text if len(ids) == len(self.trace.ids) else ""

    async def prompt(self, question: str) -> tuple[int, ...]:
        return await self.engine.prompt(question)

    async def open(
        self, question: str | Sequence[int], sampling: Sampling, *, room: int, overlap: bool = False
    ) -> RetraceSession:
        return RetraceSession(self, await self.engine.open(question, sampling, room=room))

    async def close(self) -> None:
        return None

    async def told(self, start: int, end: int) -> tuple[int, ...]:
        """A piece of the trace in the tokens of the model that is asked. A character cut in two goes with its end."""
        ids = self.trace.ids
        if self.teller is None:
            return ids[start:end]
        before, after = [(await self.teller.decode(ids[:cut])).rstrip("\ufffd") for cut in (start, end)]
        return await self.engine.encode(after[len(before) :])


class RetraceSession:
    def __init__(self, engine: RetraceEngine, session: Session) -> None:
        self.engine, self.session = engine, session
        self.at = self.wasted = 0
        self.over = False

    async def think(self, tokens: int, *, ban_end: bool = False, on_text: OnText | None = None) -> Stretch:
        trace = self.engine.trace
        ids = trace.ids[self.at : self.at + tokens]
        await self.session.append(await self.engine.told(self.at, self.at + len(ids)))
        self.at += len(ids)
        self.engine.on_tokens(len(ids))
        self.over = len(ids) < tokens
        return Stretch(ids, self.over, self.over and trace.eos)

    async def prefetch(self, tokens: int, *, ban_end: bool = False) -> None:
        return None

    async def probe(
        self, suffix: Sequence[int], limit: int, done: Done, guess: Sequence[int] = (), *, rewind: int = 0, top: int = 0
    ) -> Answered:
        at_end = self.over or self.at == self.engine.trace.budget
        if at_end and self.engine.final is not None:
            return Answered(recorded=self.engine.final)
        return await self.session.probe(suffix, limit, done, guess, rewind=rewind, top=top)

    async def append(self, ids: Sequence[int]) -> None:
        raise NotRecorded("A saved trace cannot be forced to go on.", "Force it when it is generated.")

    async def write(self, limit: int) -> str:
        return self.engine.trace.written

    async def close(self) -> None:
        await self.session.close()


async def reads_alike(engine: Engine, trace: RecordedTrace) -> bool:
    """Whether these tokens are the same text to this model: it then shares the vocabulary of the one that thought them."""
    try:
        return await engine.decode(trace.ids) == trace.text
    except EngineError:
        return False
