"""Cuts a saved trace on its token ids and probes it at each cut."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, cast

from cgr.drive.driver import Driver, answer_room
from cgr.engines.base import Engine, Prompt, Sampling, is_ids, prompt_ids
from cgr.errors import NotRecorded
from cgr.lab.record.retrace import PlannedProbing, Reading, RetraceEngine, Survey, interval_cuts, piecewise
from cgr.lab.store import Key
from cgr.lab.store.config import IMPORTED, ProbeSet, same_model
from cgr.lab.store.recorded import RecordedTrace, TraceSource
from cgr.probing import ProbeSpec
from cgr.reason import Abstention
from cgr.records import Decision, Probe
from cgr.rules import NoThinking, Rule, Seen
from cgr.rules.marks import Place, marks

TEMPLATE_TOKENS = 1024  # more than a chat template adds to a question


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
    """Makes one probe set of one run. `generator`: the model that generated the traces, if it has another vocabulary.
    `as_text`: the recorded ids are of no use to the probed model, so the text is encoded."""

    store: TraceSource
    engine: Engine
    probe_set: ProbeSet
    on_tokens: Callable[[int], None]
    generator: Engine | None = None
    as_text: bool = False
    _texts: dict[int, str] = field(default_factory=dict)

    async def probe(self, key: Key) -> Decision:
        """The probes of one trace and its final answer, as the decision of a rule that never stops."""
        if self.probe_set.where == "start":
            return await self._before_thinking(key)
        planned = await self.plan(key)
        return planned.known or await self.carry_out(planned, self.engine)

    async def carry_out(self, planned: PlannedProbing, engine: Engine) -> Decision:
        """Probe a trace as planned, on this engine."""
        trace, cuts, final = planned.trace, planned.cuts, planned.final
        reach = None if final is None else cuts[-1]
        retraced = RetraceEngine(
            engine, trace, self.on_tokens, cuts=cuts, final=final, reading=planned.reading, reach=reach
        )
        return await self._drive(retraced, AskAt(positions=cuts), planned.prompt, planned.spec, planned.room)

    async def _before_thinking(self, key: Key) -> Decision:
        """An answer without thinking as a probe; the final answer of the trace stays as it was."""
        trace = self.store.trace(key)
        spec = self.probe_set.asking.spec(trace.format, trace.question)
        engine, room = RetraceEngine(self.engine, trace, self.on_tokens), await answer_room(self.engine, spec)
        made = await self._drive(engine, NoThinking(), self._prompt(key, trace), spec, room)
        return replace(made, probes=(cast(Probe, made.final),), final=None)

    async def _drive(self, engine: RetraceEngine, rule: Rule, prompt: Prompt, spec: ProbeSpec, room: int) -> Decision:
        session = await engine.open(prompt, Sampling(), room=room)
        try:
            outcome = await Driver(engine, session, spec, full=True).run(rule, engine.trace.budget, Abstention())
        finally:
            await session.close()
        return outcome.decision

    async def survey(self) -> Survey:
        """How the traces of the run fit this model: which are encoded from text, and which are too long."""
        keys = self.store.made() if self.probe_set.where != "start" else ()
        survey = Survey(len(keys))
        for key in keys:
            if not await self._surely_fits(key):
                planned = await self.plan(key)
                survey.add(planned, await self.engine.decode(planned.reading.ids) if planned.encoded else None)
        return survey

    async def _surely_fits(self, key: Key) -> bool:
        """Whether a trace with ids fits by a simple bound: no text has more tokens than bytes."""
        trace = self.store.trace(key)
        if self._is_text(trace):
            return False
        prompt, answer = self._prompt(key, trace), await answer_room(self.engine, self.probe_set.asking.spec(trace.format))
        before = len(prompt) if is_ids(prompt) else len(str(prompt).encode()) + TEMPLATE_TOKENS
        thinking = len(trace.text.encode()) if self.generator else trace.thinking_tokens
        return before + thinking + answer <= self.engine.info.context

    def _is_text(self, trace: RecordedTrace) -> bool:
        return self.as_text or len(trace.ids) != trace.thinking_tokens

    async def plan(self, key: Key) -> PlannedProbing:
        """What of a trace is probed."""
        trace = self.store.trace(key)
        encoded = self._is_text(trace)
        reading, positions = await (self._encoded(trace) if encoded else self._recorded(trace))
        spec, prompt = self.probe_set.asking.spec(trace.format, trace.question), self._prompt(key, trace)
        answer = await answer_room(self.engine, spec)
        space = self.engine.info.context - len(await prompt_ids(prompt, self.engine)) - answer
        cuts = tuple(at for at in positions if reading.offset(at) <= space)
        final = trace.final if self._keeps_final() or len(reading.ids) > space else None
        thinking = len(reading.ids) if final is None else reading.offset(cuts[-1]) if cuts else 0
        left_out = len(positions) - len(cuts)
        return PlannedProbing(trace, prompt, spec, reading, cuts, left_out, final, thinking + answer, encoded)

    @property
    def _own(self) -> bool:
        """Whether the model that generated the traces is probed."""
        return same_model(self.store.config, self.probe_set)

    def _prompt(self, key: Key, trace: RecordedTrace) -> Prompt:
        """The recorded ids if they are the probed model's; a paired engine and other models need the text."""
        config = self.store.config
        usable = self._own or (config.model == IMPORTED and not self.as_text)
        recorded = self.store.prompt_ids(key) if usable and self.engine.prober is None else ()
        if not recorded and not trace.question.strip():
            raise NotRecorded(
                f"Question {trace.question_id!r} has no text, so the model cannot be asked.", "Import it with `question`."
            )
        return recorded or config.prompt(trace.question)

    def _keeps_final(self) -> bool:
        """Whether the recorded final answer stays: it is the generator's, and with the same options it would be equal."""
        usual = self.store.config.asking.known()
        options = replace(self.probe_set.asking, aggregate=usual.aggregate)
        return not self._own or options.reads == "entropy" or options == usual

    async def _recorded(self, trace: RecordedTrace) -> tuple[Reading, tuple[int, ...]]:
        """A trace by its ids, and the positions to probe, up to the end of the trace and below the budget."""
        found = interval_cuts(trace, self.probe_set.interval) if self.probe_set.interval else await self._marks(trace.ids)
        positions = tuple(at for at in found if at < trace.budget)
        if self.generator is None:
            return Reading(trace.ids, trace.thinking_tokens), positions
        return await piecewise(trace, positions, self.generator, self.engine), positions

    async def _encoded(self, trace: RecordedTrace) -> tuple[Reading, tuple[int, ...]]:
        """The same for a trace by its text. Marks are found in the model's tokens; positions count the recorded ones."""
        ids, length = await self.engine.encode(trace.text), trace.thinking_tokens
        offsets = {}
        if not self.probe_set.interval:
            offsets = {-(-mark * length // len(ids)): mark for mark in reversed(await self._marks(ids))}
        found = sorted(offsets) or (interval_cuts(trace, self.probe_set.interval) if self.probe_set.interval else ())
        return Reading(ids, length, offsets), tuple(at for at in found if at < trace.budget)

    async def _marks(self, ids: Sequence[int]) -> Sequence[int]:
        return marks([await self._text(token) for token in ids], cast(Place, self.probe_set.where))

    async def _text(self, token: int) -> str:
        if token not in self._texts:
            self._texts[token] = await (self.generator or self.engine).decode([token])
        return self._texts[token]
