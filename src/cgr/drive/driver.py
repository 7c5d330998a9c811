"""Connects the loop to an engine: the session does what `reason()` requests, and the result is sent back.

With `overlap`, thinking continues while a probe is running. The loop does not know of it, so the decision is the same;
tokens that were thought past a stop are dropped and counted.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from cgr import certainty
from cgr.drive.events import Decided, Event, OnEvent, Probed, Thinking
from cgr.drive.lookahead import Lookahead
from cgr.engines.base import Answered, Done, Engine, Reader, Session
from cgr.errors import EngineError, MissingCapability, NotRecorded
from cgr.probing import END_TAG, ProbeSpec
from cgr.reason import Abstention, Append, Ask, Reply, Request, Think, Thought, reason
from cgr.records import Decision, Probe
from cgr.rules import Rule
from cgr.rules.stated import stated

if TYPE_CHECKING:
    from cgr.drive.answer import AnswerStyle, WrittenAnswer


@dataclass(frozen=True, slots=True)
class Outcome:
    """A decision, the thinking that it was made on, and how many tokens were thought and not used. `answer`: what was
    written after it, if anything; the thinking then includes what was added to end it well."""

    decision: Decision
    ids: tuple[int, ...]
    thinking: str
    wasted_tokens: int = 0
    answer: WrittenAnswer | None = None


class Driver:
    """One question on one session.

    `full`: decode whole answers, even where their beginning shows that they are not sure, and note where they stand in the
    thinking, as a recording needs it. `on_event` is called with each event; `ready` is awaited before each stretch of
    thinking. `marks`: where a recording was probed, for rules that probe at marks; other rules probe there in place of
    their own positions. If the session has a `reader`, that is probed on the way, and the session gives the answer.
    `style`: write an answer as text after the decision, in this way.
    """

    def __init__(
        self,
        engine: Engine,
        session: Session,
        spec: ProbeSpec,
        *,
        overlap: bool = False,
        full: bool = False,
        on_event: OnEvent | None = None,
        ready: Callable[[], Awaitable[None]] | None = None,
        marks: Sequence[int] | None = None,
        style: AnswerStyle | None = None,
    ) -> None:
        self.engine, self.session, self.spec, self.probe_spec = engine, session, spec, spec
        self.overlap, self.full, self.on_event, self.ready, self.marks = overlap, full, on_event, ready, marks
        self.style, self.last_text = style, ""
        self._notes_stated = full
        self.ids: list[int] = []
        self._lookahead: Lookahead | None = None  # only for rules that probe at marks
        self._guess: tuple[int, ...] = ()
        self._last_think = Think(0)

    async def run(self, rule: Rule, budget: int, abstention: Abstention) -> Outcome:
        """Drive the loop to its decision, and close the session."""
        try:
            if self.style:
                decision, answer = await self._write(self.style, rule, budget, abstention)
            else:
                decision, answer = await self._decide(rule, budget, abstention), None
        finally:
            await self.session.close()
        if not self.style:
            self.emit(Decided(decision))
        thinking = "" if self.style else await self.engine.decode(self.ids)
        return Outcome(decision, tuple(self.ids), thinking, self.session.wasted + self._unused, answer)

    async def _decide(self, rule: Rule, budget: int, abstention: Abstention) -> Decision:
        loop = reason(rule, budget, abstention, separate_prober=self.session.reader is not None, positions=self.marks)
        self.probe_spec = rule.probe_style.over(self.spec)
        self._notes_stated = self.full or rule.reads_stated
        if rule.place is not None:
            self._lookahead = Lookahead(self.engine, self.session, self.marks)
        try:
            rule.check()
            check_needs(rule, self.engine)
            request = next(loop)
            while True:
                request = loop.send(await self.serve(request))
        except StopIteration as stop:
            decision: Decision = stop.value
        return decision

    async def _write(
        self, style: AnswerStyle, rule: Rule, budget: int, abstention: Abstention
    ) -> tuple[Decision, WrittenAnswer]:
        from cgr.drive.answer import think_plainly, write_answer  # `cgr solve` does not need them

        if style.probed:
            decision = await self._decide(rule, budget, abstention)
        else:
            decision = await think_plainly(self, budget if rule.thinks else 0)
        return decision, await write_answer(self, style, decision, budget)

    async def serve(self, request: Request) -> Reply:
        """Do what the loop requests."""
        match request:
            case Think():
                return await self._think(request)
            case Ask():
                return await self._ask(request)
            case Append():
                return await self._append(request)

    async def think_on(self, tokens: int) -> bool:
        """Think this many tokens more, after the decision; whether the model then wanted to end."""
        return (await self._think(Think(tokens))).ended

    async def close_with(self, text: str) -> None:
        """End the thinking here, with this text; what was thought ahead is dropped."""
        if self._unused:  # read past a mark: these tokens cannot be forgotten
            await self.think_on(self._unused)
        ids = await self.engine.encode(text) if text else ()
        await (self._lookahead or self.session).append(ids)
        self.ids += ids
        if text:
            self.emit(Thinking(text, forced=True))

    @property
    def _unused(self) -> int:
        """Tokens that were read past the last mark and not given to the loop."""
        return self._lookahead.rewind if self._lookahead else 0

    async def _think(self, wanted: Think) -> Thought:
        if self.ready:
            await self.ready()
        on_text = self._emit_text if self.on_event or self.style else None
        marked = False
        if self._lookahead:
            stretch, marked = await self._lookahead.think(
                wanted.tokens, wanted.until, ban_end=wanted.ban_end, on_text=on_text
            )
        else:
            stretch = await self.session.think(wanted.tokens, ban_end=wanted.ban_end, on_text=on_text)
        self._last_think = wanted if wanted.until is None else replace(wanted, tokens=len(stretch.ids))
        self.ids += stretch.ids
        return Thought(len(stretch.ids), stretch.ended, stretch.eos, marked, stretch.tops, stretch.ids)

    async def _ask(self, ask: Ask) -> Probe:
        spec = self.probe_spec if ask.final is None else self.spec
        reader = self.session.reader if ask.final is None else None
        suffix = await self._suffix(ask, spec, reader.engine if reader else self.engine)
        if self.overlap and ask.final is None:
            # starts to think ahead; a stop closes the session, which cancels it, and otherwise `think` uses it
            await self.session.prefetch(self._last_think.tokens, ban_end=self._last_think.ban_end)
        answered = await self._probe(reader, suffix, spec, spec.done(None if self.full else ask.cut_below))
        probe = self._read(ask, spec, suffix, answered)
        if answered.recorded is None and (letter := spec.letter_token(answered.tokens)):
            engine = reader.engine if reader else self.engine
            probe = spec.with_options(probe, letter, {one: await engine.decode([one]) for one, _ in letter.top})
        self._guess = tuple(token.id for token in probe.tokens)
        if ask.final is None:
            if self._notes_stated and answered.recorded is None and probe.closed:
                probe = await self._with_stated(probe)
            self.emit(Probed(probe))
        return probe

    async def _with_stated(self, probe: Probe) -> Probe:
        """The probe with where its answer stands in the thinking; as it was if the text so far is not known."""
        try:
            text = await self.engine.decode(self.ids)
        except EngineError:  # a server without a tokenizer
            return probe
        return replace(probe, stated=stated(probe.answer, text)) if text else probe

    def _probe(
        self, reader: Reader | None, suffix: Sequence[int], spec: ProbeSpec, done: Done
    ) -> Coroutine[Any, Any, Answered]:
        """The last answer is a guess for the next, but not for another model."""
        if reader:
            return reader.probe(self.ids, suffix, spec.limit, done, self._guess, top=spec.top)
        guess = () if self.session.reader else self._guess
        return self.session.probe(suffix, spec.limit, done, guess, rewind=self._unused, top=spec.top)

    async def _suffix(self, ask: Ask, spec: ProbeSpec, engine: Engine) -> tuple[int, ...]:
        """The prefix's ids, with the end tag before them if thinking is over or the spec closes it. An end tag inside a
        prefix is replaced by this model's own."""
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
        """A recorded probe under this spec's aggregate. One that was cut short must still decide what is asked."""
        if spec.reads == "entropy":
            return probe
        value = certainty.of_probe(spec.aggregate, probe)
        falls = certainty.falls(spec.aggregate, probe.options)
        if probe.bound and not (falls and ask.cut_below is not None and value < ask.cut_below):
            raise NotRecorded(
                f"The probe at token {probe.at} was cut short: its certainty is at most {value:.3g}.",
                "Record full probabilities, or replay at the threshold it was recorded for or above.",
            )
        return replace(probe, certainty=value)

    async def _append(self, append: Append) -> int:
        whole = await self.engine.encode(append.text)
        ids = whole[: append.at_most]
        await (self._lookahead or self.session).append(ids)
        self.ids += ids
        self.emit(Thinking(append.text if ids == whole else await self.engine.decode(ids), forced=True))
        return len(ids)

    def _emit_text(self, text: str) -> None:
        self.last_text = text
        if self.on_event:
            self.on_event(Thinking(text))

    def emit(self, event: Event) -> None:
        """Pass an event on."""
        if self.on_event:
            self.on_event(event)


async def answer_room(engine: Engine, *specs: ProbeSpec) -> int:
    """The most tokens that an answer can take after the thinking under these specs, the end tag included."""
    return max([len(await engine.encode(engine.info.close_tag + spec.prefix)) + spec.limit for spec in specs])


def check_needs(rule: Rule, engine: Engine) -> None:
    """Raise `MissingCapability` before anything is computed if the engine lacks something that the rule needs."""
    needs = {*rule.needs, *(("ban",) if rule.bans_end else ())}
    for need in sorted(needs):
        if not engine.capabilities.gives(need):
            raise MissingCapability(
                f"The rule {rule.name!r} needs {need!r}, which {engine.info.engine} does not give.",
                "Choose another engine or another rule (`cgr rules`).",
            )
