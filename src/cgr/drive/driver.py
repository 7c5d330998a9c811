"""Joins the loop to an engine: what `reason()` wants, the session does; what came of it is sent back.

With `overlap`, thinking goes on while a probe is in flight. The loop never learns of it, so the decision is the same;
tokens thought past a stop are thrown away and counted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cgr import certainty
from cgr.drive.lookahead import Lookahead
from cgr.engines.base import Answered, Done, Engine, Session
from cgr.engines.paired import Reader
from cgr.errors import MissingCapability, NotRecorded
from cgr.probing import END_TAG, ProbeSpec
from cgr.reason import Abstention, Append, Ask, Reply, Request, Think, Thought, reason
from cgr.records import Decision, Probe
from cgr.rules import Rule


@dataclass(frozen=True, slots=True)
class Thinking:
    """Some text was thought (or written in place of the end tag)."""

    text: str
    forced: bool = False


@dataclass(frozen=True, slots=True)
class Probed:
    """A probe was made."""

    probe: Probe


@dataclass(frozen=True, slots=True)
class Decided:
    """The question is settled."""

    decision: Decision


Event = Thinking | Probed | Decided
OnEvent = Callable[[Event], None]


@dataclass(frozen=True, slots=True)
class Outcome:
    """A decision, the thinking that it was made on, and the tokens that were thought past it for nothing."""

    decision: Decision
    ids: tuple[int, ...]
    thinking: str
    wasted_tokens: int = 0


class Driver:
    """One question on one session. `full` asks for whole answers even where a beginning would settle the matter. `marks`:
    where a recording was asked, for rules that ask at places of their own. A session with a `reader` has that one asked on
    the way, and answers by itself."""

    def __init__(
        self,
        engine: Engine,
        session: Session,
        spec: ProbeSpec,
        *,
        overlap: bool = False,
        full: bool = False,
        on_event: OnEvent | None = None,
        marks: Sequence[int] | None = None,
    ) -> None:
        self.engine, self.session, self.spec, self.asking = engine, session, spec, spec
        self.lookahead = Lookahead(engine, session, marks)
        self.reader: Reader | None = getattr(session, "reader", None)
        self.overlap, self.full, self.on_event = overlap, full, on_event
        self.ids: list[int] = []
        self._guess: tuple[int, ...] = ()
        self._stretch = 0
        self._ban_end = False

    async def run(self, rule: Rule, budget: int, abstention: Abstention) -> Outcome:
        loop = reason(rule, budget, abstention, separate_prober=self.reader is not None)
        self.asking = rule.probe_style.over(self.spec)
        try:
            rule.check()
            check_needs(rule, self.engine)
            request = next(loop)
            while True:
                request = loop.send(await self.serve(request))
        except StopIteration as stop:
            decision: Decision = stop.value
        finally:
            await self.session.close()
        self._tell(Decided(decision))
        thinking = await self.engine.decode(self.ids)
        return Outcome(decision, tuple(self.ids), thinking, self.session.wasted + self.lookahead.rewind)

    async def serve(self, request: Request) -> Reply:
        match request:
            case Think():
                return await self._think(request)
            case Ask():
                return await self._ask(request)
            case Append():
                return await self._append(request)

    async def _think(self, wanted: Think) -> Thought:
        on_text = self._hear if self.on_event else None
        stretch, marked = await self.lookahead.think(wanted.tokens, wanted.until, ban_end=wanted.ban_end, on_text=on_text)
        self._stretch, self._ban_end = wanted.tokens if wanted.until is None else len(stretch.ids), wanted.ban_end
        self.ids += stretch.ids
        return Thought(len(stretch.ids), stretch.ended, stretch.eos, marked, stretch.tops, stretch.ids)

    async def _ask(self, ask: Ask) -> Probe:
        spec = self.asking if ask.final is None else self.spec
        reader = self.reader if ask.final is None else None
        suffix = await self._suffix(ask, spec, reader.engine if reader else self.engine)
        done = spec.done(None if self.full else ask.cut_below)
        asking = self._probe(reader, suffix, spec, done)
        if self.overlap and ask.final is None:
            answered = await self._meanwhile(asking)
        else:
            answered = await asking
        probe = self._read(ask, spec, suffix, answered)
        self._guess = tuple(token.id for token in probe.tokens)
        if ask.final is None:
            self._tell(Probed(probe))
        return probe

    def _probe(
        self, reader: Reader | None, suffix: Sequence[int], spec: ProbeSpec, done: Done
    ) -> Coroutine[Any, Any, Answered]:
        """What the reader said is no guess for another model."""
        if reader:
            return reader.probe(self.ids, suffix, spec.limit, done, self._guess, top=spec.top)
        guess = () if self.reader else self._guess
        return self.session.probe(suffix, spec.limit, done, guess, rewind=self.lookahead.rewind, top=spec.top)

    async def _meanwhile(self, asking: Coroutine[Any, Any, Answered]) -> Answered:
        """The probe, while the session thinks ahead as far as the last stretch went. Not a TaskGroup: what goes wrong must
        come out as it is, not in a group."""
        ahead = asyncio.create_task(self.session.prefetch(self._stretch, ban_end=self._ban_end))
        try:
            answered = await asking
            await ahead
        finally:
            ahead.cancel()
            await asyncio.gather(ahead, return_exceptions=True)
        return answered

    async def _suffix(self, ask: Ask, spec: ProbeSpec, engine: Engine) -> tuple[int, ...]:
        """The prefix's ids, the end tag before them where thinking is over or the spec closes it. An end tag in a prefix
        is this model's own."""
        closing = ask.close_thinking or spec.closes(final=ask.final not in (None, "certainty"))
        close_tag = engine.info.close_tag
        prefix = await engine.encode(spec.prefix.replace(END_TAG, close_tag))
        return (*await engine.encode(close_tag), *prefix) if closing else prefix

    def _read(self, ask: Ask, spec: ProbeSpec, suffix: tuple[int, ...], answered: Answered) -> Probe:
        if answered.recorded is not None:
            return self._reread(ask, spec, answered.recorded)
        probe = spec.read(ask.at, answered.tokens, answered.ended)
        return replace(
            probe,
            entropy=probe.entropy if answered.entropy is None else answered.entropy,
            suffix_ids=suffix,
            prefilled=answered.prefilled,
            cached=answered.cached,
            seconds=answered.seconds,
        )

    def _reread(self, ask: Ask, spec: ProbeSpec, probe: Probe) -> Probe:
        """A recorded probe under this spec's aggregate; one that was cut short must still settle what is asked."""
        if spec.reads == "entropy":
            return probe
        value = certainty.aggregate(spec.aggregate, probe.probabilities)
        falls = spec.aggregate in certainty.FALLING
        if probe.bound and not (falls and ask.cut_below is not None and value < ask.cut_below):
            raise NotRecorded(
                f"The probe at token {probe.at} was cut short: its certainty is at most {value:.3g}.",
                "Record full probabilities, or replay at the threshold it was recorded for or above.",
            )
        return replace(probe, certainty=value)

    async def _append(self, append: Append) -> int:
        whole = await self.engine.encode(append.text)
        ids = whole[: append.at_most]
        await self.lookahead.append(ids)
        self.ids += ids
        self._tell(Thinking(append.text if ids == whole else await self.engine.decode(ids), forced=True))
        return len(ids)

    def _hear(self, text: str) -> None:
        self._tell(Thinking(text))

    def _tell(self, event: Event) -> None:
        if self.on_event:
            self.on_event(event)


async def answer_room(engine: Engine, *ways: ProbeSpec) -> int:
    """Tokens that an answer may take after the thinking, the end tag included, in whichever of these ways it is asked."""
    suffixes = [await engine.encode(engine.info.close_tag + way.prefix) for way in ways]
    return max(len(suffix) + way.limit for suffix, way in zip(suffixes, ways, strict=True))


def check_needs(rule: Rule, engine: Engine) -> None:
    """What a rule needs and an engine lacks is an error before anything is computed."""
    needs = {*rule.needs, *(("ban",) if rule.bans_end else ())}
    for need in sorted(needs):
        if not engine.capabilities.gives(need):
            raise MissingCapability(
                f"The rule {rule.name!r} needs {need!r}, which {engine.info.engine} does not give.",
                "Choose another engine or another rule (`cgr rules`).",
            )
