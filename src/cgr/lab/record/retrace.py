"""Feeds a saved trace to a live model, token by token, so that it can be probed at every cut.

To the loop this is an engine like any other: it thinks the saved tokens, and its probes are real. The cuts are in ascending
order on one session, so the model reads the trace once. An engine that can do so probes all cuts in one pass; to the loop
they look like separate probes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, cast

from cgr.engines.base import (
    Answered,
    Done,
    Engine,
    Ids,
    ModelInfo,
    OnText,
    Prompt,
    Sampling,
    Session,
    Stretch,
    Written,
    is_ids,
)
from cgr.engines.forwarding import ForwardingEngine, ForwardingSession
from cgr.errors import DoesNotFit, EngineError, NotRecorded
from cgr.lab.store.recorded import RecordedTrace
from cgr.probing import ProbeSpec
from cgr.records import Conversation, Decision, Probe

NO_ID = 0  # stands for a thinking token whose id was not recorded


class PackingEngine(Engine, Protocol):
    """An engine with `capabilities.packed`."""

    async def probe_many(
        self, prompt: Ids, trace: Ids, cuts: Ids, suffix: Ids, limit: int, done: Done, *, top: int = 0
    ) -> list[Answered]:
        """The answer at each cut of the trace."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A saved trace in the tokens of the probed model.

    Positions count the recorded tokens, `length` in all. `offsets`: how many tokens of the probed model are before a
    position, where that is known; elsewhere it is in proportion, which is exact if both count the same tokens.
    """

    ids: tuple[int, ...]
    length: int
    offsets: Mapping[int, int] = field(default_factory=dict)

    def offset(self, at: int) -> int:
        """The number of tokens of the probed model before this position."""
        return self.offsets.get(at, at * len(self.ids) // max(self.length, 1))


@dataclass(frozen=True, slots=True)
class PlannedProbing:
    """How one trace will be probed: `cuts` are the positions that fit into the context of the probed model, and `left_out`
    counts the others. `final`: the recorded final answer, if it is not decoded again. `encoded`: the trace was text."""

    trace: RecordedTrace
    prompt: Prompt
    spec: ProbeSpec
    reading: Reading
    cuts: tuple[int, ...]
    left_out: int
    final: Probe | None
    room: int
    encoded: bool

    @property
    def known(self) -> Decision | None:
        """What comes of it, if there is nothing to probe and the final answer is known."""
        if self.cuts or self.final is None:
            return None
        final, trace = self.final, self.trace
        end = (trace.ended, final.answer, final.certainty, final.closed, False, trace.thinking_tokens)
        return Decision(*end, final=final)


@dataclass(slots=True)
class Survey:
    """Counts of a run before it is probed with a model: `traces` that are encoded from their text with their tokens and
    characters, and traces that are longer than the model's context with their cuts."""

    all_traces: int
    traces: int = 0
    recorded_tokens: int = 0
    model_tokens: int = 0
    characters: int = 0
    changed: int = 0
    cut_short: int = 0
    cuts: int = 0
    left_out: int = 0

    def add(self, planned: PlannedProbing, back: str | None) -> None:
        """Count a trace; `back`: its text after encoding and decoding, if it is encoded."""
        if back is not None:
            self.traces += 1
            self.recorded_tokens += planned.trace.thinking_tokens
            self.model_tokens += len(planned.reading.ids)
            self.characters += len(planned.trace.text)
            self.changed += changed_characters(planned.trace.text, back)
        if planned.left_out:
            self.cut_short += 1
            self.cuts += len(planned.cuts)
            self.left_out += planned.left_out

    def notes(self, info: ModelInfo) -> list[str]:
        """What a user should know; `DoesNotFit` if nothing can be probed."""
        if self.cut_short and self.cut_short == self.all_traces and not self.cuts:
            raise DoesNotFit(
                f"No trace fits into the context of {info.name} ({info.context:,} tokens), not even up to its first cut.",
                "Probe with a model that has more context (--model), or at a smaller --interval.",
            )
        found = []
        if self.traces:
            share = self.changed / max(self.characters, 1)
            percent = "none" if not share else "less than 0.1%" if share < 0.001 else f"{share:.1%}"
            counts = f"{self.recorded_tokens:,} recorded tokens are {self.model_tokens:,} of its own"
            mapped = "" if self.recorded_tokens == self.model_tokens else " Positions are converted in proportion."
            found.append(
                f"{_traces(self.traces)} encoded from text with the tokenizer of {info.name}: {counts}, and {percent} of "
                f"the text came back changed.{mapped}"
            )
        if self.cut_short:
            found.append(
                f"{_traces(self.cut_short)} longer than the context of {info.name} ({info.context:,} tokens) and "
                f"probed as far as possible: {self.left_out:,} of {self.left_out + self.cuts:,} positions are left out."
            )
        return found


def _traces(count: int) -> str:
    return "1 trace is" if count == 1 else f"{count:,} traces are"


def changed_characters(text: str, back: str) -> int:
    """How many characters of a text are missing or new after encoding and decoding, whichever is more."""
    if text == back:
        return 0
    there, here = Counter(text), Counter(back)
    return max((there - here).total(), (here - there).total())


class RetraceEngine(ForwardingEngine):
    """An engine whose thinking is a saved trace.

    `cuts`: where it will be probed, in ascending order, if known. `final`: the recorded final answer, if it need not be
    decoded again. `reading`: the trace in the tokens of the model, if they are not the recorded ids. `reach`: the position
    up to which the model has to read the trace, if it is not the end.
    """

    def __init__(
        self,
        engine: Engine,
        trace: RecordedTrace,
        on_tokens: Callable[[int], None] = lambda tokens: None,
        *,
        cuts: Ids = (),
        final: Probe | None = None,
        reading: Reading | None = None,
        reach: int | None = None,
    ) -> None:
        super().__init__(engine)
        self.trace, self.final, self.on_tokens = trace, final, on_tokens
        self.reading = reading or Reading(trace.ids, trace.thinking_tokens)
        self.reach = trace.thinking_tokens if reach is None else reach
        self.packed_cuts = cuts if engine.capabilities.packed else ()

    async def decode(self, ids: Ids) -> str:
        """The text of the whole trace, which need not be decoded, or of its beginning, or of one token of the probed model.
        The beginning is not known ("") if the recorded tokens are not those of the probed model."""
        if len(ids) == self.trace.thinking_tokens != 1:
            return self.trace.text
        return await self.engine.decode(ids) if len(ids) == 1 or self.reading.ids == self.trace.ids else ""

    async def open(
        self, prompt: Prompt, sampling: Sampling, *, room: int, overlap: bool = False, wait: float | None = None
    ) -> RetraceSession:
        session = await self.engine.open(prompt, sampling, room=room, wait=wait)
        return RetraceSession(self, session, prompt)


class RetraceSession(ForwardingSession):
    """A session that appends the saved tokens in place of thinking."""

    def __init__(self, engine: RetraceEngine, session: Session, prompt: Prompt) -> None:
        super().__init__(session)
        self.engine, self.prompt, self.at, self.ended = engine, prompt, 0, False
        self._given = 0  # tokens of the probed model
        self._packed_suffix: tuple[int, ...] | None = None
        self._packed: dict[int, Answered] = {}

    async def think(self, tokens: int, *, ban_end: bool = False, on_text: OnText | None = None) -> Stretch:
        trace = self.engine.trace
        start, self.at = self.at, min(self.at + tokens, trace.thinking_tokens)
        if self.at <= self.engine.reach:
            await self._give(self.engine.reading.offset(self.at))
        self.engine.on_tokens(self.at - start)
        self.ended = self.at - start < tokens
        ids = trace.ids[start : self.at] or (NO_ID,) * (self.at - start)
        return Stretch(ids, self.ended, self.ended and trace.eos)

    async def _give(self, end: int) -> None:
        await self.session.append(self.engine.reading.ids[self._given : end])
        self._given = end

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
        engine, reading = cast(PackingEngine, self.engine.engine), self.engine.reading
        prompt = self.prompt if is_ids(self.prompt) else await engine.prompt(cast(Conversation, self.prompt))
        offsets = {cut: reading.offset(cut) for cut in self.engine.packed_cuts}
        places = sorted({*offsets.values()})
        found = await engine.probe_many(prompt, reading.ids[: places[-1]], places, suffix, limit, done, top=top)
        by_place = dict(zip(places, found, strict=True))
        return {cut: by_place[place] for cut, place in offsets.items()}

    async def append(self, ids: Ids) -> None:
        raise NotRecorded("A saved trace cannot be forced to continue.", "Force it when it is generated.")

    async def write(self, limit: int) -> AsyncIterator[Written]:
        yield Written(self.engine.trace.written, stop="eos")


def interval_cuts(trace: RecordedTrace, interval: int) -> tuple[int, ...]:
    """Every multiple of the interval; in a forced trace, also each position where the thinking wanted to end.

    A cut inside an appended text moves to its end.
    """
    ends = {at for at, _ in trace.forced}
    if ends and trace.ended == "end_of_thinking":  # it was forced a limited number of times
        ends.add(trace.thinking_tokens)
    cuts = set(range(interval, trace.thinking_tokens + 1, interval)) | ends
    return tuple(sorted(set(map(trace.cut, cuts)) - {0}))


async def piecewise(trace: RecordedTrace, cuts: Ids, generator: Engine, engine: Engine) -> Reading:
    """A trace whose ids are the generator's, in the tokens of another model: the text between two cuts is encoded for
    itself. A character that is cut in two goes to the next piece."""
    ids: list[int] = []
    offsets, before = {}, ""
    for cut in sorted({*cuts, trace.thinking_tokens}):
        text = (await generator.decode(trace.ids[:cut])).rstrip("\ufffd")
        ids += await engine.encode(text[len(before) :])
        before, offsets[cut] = text, len(ids)
    return Reading(tuple(ids), trace.thinking_tokens, offsets)


async def same_vocabulary(engine: Engine, trace: RecordedTrace) -> bool:
    """Whether the ids of the trace are the same text to this engine."""
    try:
        return await engine.decode(trace.ids) == trace.text
    except EngineError:
        return False
