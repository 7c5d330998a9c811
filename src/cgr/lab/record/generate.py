"""From questions to traces: every question under every seed, thought through to its end, many at once.

Thinking is done by the one loop that there is, under the rule `fixed-budget`, or, to be probed on the way, under one that
asks every few tokens and never stops. Sampling is keyed by seed and position, so the traces are the same either way, and
the same as live.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar, cast

from cgr.drive.driver import Driver, answer_room
from cgr.engines.base import Answered, Done, Engine, OnText, Sampling, Session, Stretch, keyed_seed
from cgr.errors import MissingCapability, UsageError
from cgr.lab.record.jobs import Jobs
from cgr.lab.record.progress import Progress
from cgr.lab.store import DEFAULT, GENERATE, Key, Store
from cgr.lab.store.config import NATURAL, Asking, ProbeSet, RunConfig
from cgr.lab.store.recorded import RecordedTrace
from cgr.reason import Abstention
from cgr.records import Decision, Ended, Question
from cgr.rules import Action, BudgetForcing, FixedBudget, KeepThinking, Rule, Seen, next_multiple
from cgr.settings import Settings
from cgr.solve import Model

FORCING = ("budget-forcing", "cgr-forced")
WRITTEN_TOKENS = 1024
STRETCH = 256  # tokens after which a long stretch of thinking is heard of


@dataclass(frozen=True, kw_only=True)
class AskEvery(Rule):
    """Ask every few tokens, decode whole answers, and never stop."""

    interval: int
    name: ClassVar[str] = "ask-every"
    needs: ClassVar[frozenset[str]] = frozenset({"logprobs"})

    def next_probe(self, seen: Seen) -> int | None:
        return next_multiple(seen.at, self.interval)


@dataclass(frozen=True, kw_only=True)
class AskEveryForced(AskEvery):
    """The same, forced on to the budget, and asked wherever it wanted to end: from this both ways of forcing are replayed,
    `cgr-forced` at any threshold, since they do not differ until one of them stops."""

    name: ClassVar[str] = "ask-every-forced"
    probes_at_end: ClassVar[bool] = True

    def on_end(self, seen: Seen) -> Action:
        return KeepThinking()


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be made. Of the settings, those that a trace or its answer depends on are used. A rule that forces the
    thinking on makes other traces; any other is replayed on natural ones."""

    questions: tuple[Question, ...]
    seeds: int
    settings: Settings = field(default_factory=Settings)
    source: str = ""
    probe: bool = False
    logprobs: bool = False
    written_tokens: int = WRITTEN_TOKENS

    def __post_init__(self) -> None:
        if self.seeds < 1:
            raise UsageError(f"{self.seeds} seeds make no traces.", "Use --seeds 1 or more.")
        if self.written_tokens < 0:
            raise UsageError("A model cannot write fewer than 0 tokens.", "Use --written-tokens 0 to write nothing.")
        if not self.questions:
            raise UsageError("There are no questions.", "Name a source that has some.")

    def wanted(self) -> list[Key]:
        """Seed by seed, so that what is done first is every question once."""
        return [(question.id, seed) for seed in range(self.seeds) for question in self.questions]

    def config(self, engine: Engine) -> RunConfig:
        """This plan on this engine: everything that was left open is decided."""
        info, resolved = engine.info, self.settings.resolve(engine.info)
        if self.logprobs and not engine.capabilities.thinking_logprobs:
            raise MissingCapability(
                f"{info.engine} does not give the log-probabilities of thinking.", "Leave --logprobs out."
            )
        return RunConfig(
            model=info.name,
            engine=info.engine,
            budget=resolved.budget,
            interval=resolved.interval,
            source=self.source,
            fingerprint=info.fingerprint,
            temperature=self.settings.temperature,
            top_p=self.settings.top_p,
            instruction=self.settings.instruction,
            asking=Asking.of(self.settings, info),
            written_tokens=self.written_tokens,
            logprobs=self.logprobs,
            probe=self.probe,
            rule=self.settings.rule if self.settings.rule in FORCING else NATURAL,
        )


@dataclass(frozen=True, slots=True)
class Thought:
    """A trace as it was made: with the prompt it followed and the time it took."""

    trace: RecordedTrace
    prompt_ids: tuple[int, ...]
    seconds: float


def generate(folder: Path, plan: Plan, model: Model, *, sessions: int = 1, progress: Progress | None = None) -> None:
    """Make every trace of the plan that the run lacks. Interrupted, it goes on from there when called again."""

    async def work() -> None:
        async with model:
            await agenerate(folder, plan, model.engine, sessions=sessions, progress=progress)

    asyncio.run(work())


async def agenerate(
    folder: Path, plan: Plan, engine: Engine, *, sessions: int = 1, progress: Progress | None = None
) -> None:
    """The same, for asynchronous code, on an engine with so many sessions."""
    progress = progress or Progress(quiet=True)
    config = plan.config(engine)
    questions = {question.id: question for question in plan.questions}
    with Store.create(folder, config) as store:
        store.add_questions(plan.questions)
        probe_set = store.add_probe_set(_probe_set(config, engine), DEFAULT) if plan.probe else None
        made = set(store.made())
        missing = [key for key in plan.wanted() if key not in made]

        async def make(key: Key) -> Thought:
            return await think_through(engine, config, questions[key[0]], key[1], progress.read)

        def keep(key: Key, thought: Thought) -> None:
            _count(progress, thought.trace)
            prompt, seconds = thought.prompt_ids, thought.seconds
            store.add_trace(thought.trace, prompt_ids=prompt, seconds=seconds, probe_set=probe_set)

        with progress.showing("Thinking", len(plan.wanted()), len(plan.wanted()) - len(missing)):
            await Jobs(store, GENERATE, progress, sessions).run(missing, make, keep)


def _probe_set(config: RunConfig, engine: Engine) -> ProbeSet:
    """Asked of the model that thinks, or of the second one that it was paired with."""
    asked = getattr(engine, "prober", engine).info
    return ProbeSet("interval", config.interval, config.asking, asked.name, asked.fingerprint)


def _count(progress: Progress, trace: RecordedTrace) -> None:
    progress.probes += len(trace.probes)
    progress.decoded += sum(probe.decoded for probe in trace.probes)
    progress.prefilled += sum(probe.prefilled for probe in trace.probes)


async def think_through(
    engine: Engine, config: RunConfig, question: Question, seed: int, on_tokens: Callable[[int], None]
) -> Thought:
    """One question under one seed, to the end of its thinking or of the budget, and answered there."""
    began = time.monotonic()
    spec = config.asking.spec(question.format)
    text = prompt_text(config, question)
    prompt = await engine.prompt(text)
    chance = keyed_seed(seed, text)
    sampling = Sampling(config.temperature, config.top_p, chance, config.logprobs, config.budget)
    session = await engine.open(prompt, sampling, room=config.budget + await answer_room(engine, spec))
    kept = KeptSession(session, on_tokens, logprobs=config.logprobs)
    try:
        outcome = await Driver(engine, kept, spec, full=True).run(_recording_rule(config), config.budget, Abstention())
        written = await _written(session, outcome.decision, config.written_tokens)
    finally:
        await session.close()
    trace = recorded(question, seed, config.budget, outcome.decision)
    trace = replace(
        trace,
        ids=outcome.ids,
        text=outcome.thinking,
        written=written,
        logprobs=tuple(kept.logprobs),
        tops=tuple(kept.tops),
        forced=tuple(kept.forced),
    )
    return Thought(trace, prompt, time.monotonic() - began)


def _recording_rule(config: RunConfig) -> Rule:
    if config.rule in FORCING:
        return AskEveryForced(interval=config.interval) if config.probe else BudgetForcing()
    return AskEvery(interval=config.interval) if config.probe else FixedBudget()


def prompt_text(config: RunConfig, question: Question) -> str:
    return Settings(instruction=config.instruction).prompt(question.text)


async def _written(session: Session, decision: Decision, limit: int) -> str:
    """What the model writes by itself, if it ended its thinking and not its turn."""
    natural = decision.stop_cause == "end_of_thinking" and not decision.eos
    return await session.write(limit) if natural and limit else ""


def recorded(question: Question, seed: int, budget: int, decision: Decision) -> RecordedTrace:
    """A decision of a rule that never stops, as what is kept of it."""
    if decision.final is None or decision.stop_cause in ("certainty", "gave_up"):
        raise UsageError("A trace that was stopped is not a whole one.", "Record with a rule that never stops.")
    return RecordedTrace(
        question_id=question.id,
        seed=seed,
        gold=question.gold,
        thinking_tokens=decision.thinking_tokens,
        ended=cast(Ended, decision.stop_cause),
        budget=budget,
        final=decision.final,
        probes=decision.probes,
        question=question.text,
        format=question.format,
        eos=decision.eos,
    )


class KeptSession:
    """A session that stays open when its driver is done, and keeps what the driver does not: log-probabilities of the
    thinking. Long stretches are thought piece by piece, so that they can be heard of."""

    def __init__(self, session: Session, on_tokens: Callable[[int], None], *, logprobs: bool = False) -> None:
        self.session, self.on_tokens, self.keeps_logprobs = session, on_tokens, logprobs
        self.reader = getattr(session, "reader", None)
        self.logprobs: list[float] = []
        self.tops: list[float] = []
        self.forced: list[tuple[int, int]] = []
        self.at = 0
        self.wasted = 0

    async def think(self, tokens: int, *, ban_end: bool = False, on_text: OnText | None = None) -> Stretch:
        ids: list[int] = []
        while True:
            piece = await self.session.think(min(STRETCH, tokens - len(ids)), ban_end=ban_end, on_text=on_text)
            ids += piece.ids
            self.logprobs += piece.logprobs
            self.tops += piece.tops
            self.on_tokens(len(piece.ids))
            if piece.ended or len(ids) >= tokens:
                self.at += len(ids)
                return replace(piece, ids=tuple(ids), logprobs=(), tops=())

    async def prefetch(self, tokens: int, *, ban_end: bool = False) -> None:
        await self.session.prefetch(tokens, ban_end=ban_end)

    async def probe(
        self, suffix: Sequence[int], limit: int, done: Done, guess: Sequence[int] = (), *, rewind: int = 0, top: int = 0
    ) -> Answered:
        return await self.session.probe(suffix, limit, done, guess, rewind=rewind, top=top)

    async def append(self, ids: Sequence[int]) -> None:
        """What is written into the thinking was not sampled, and has no log-probability."""
        await self.session.append(ids)
        self.forced.append((self.at, len(ids)))
        self.at += len(ids)
        if self.keeps_logprobs:
            self.logprobs += [math.nan] * len(ids)
            self.tops += [math.nan] * len(ids)

    async def write(self, limit: int) -> str:
        return await self.session.write(limit)

    async def close(self) -> None:
        return None
