"""Generates traces: every question under every seed, to the end of the thinking or of the budget.

Thinking is done by the loop of `cgr solve`, with a rule that never stops it. Sampling is keyed by seed and position, so a
trace is the same whether it is probed or not, and the same as in `cgr solve`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, cast

from cgr.drive.driver import Driver, Outcome, answer_room
from cgr.engines.base import Capabilities, Engine, ModelInfo, OnText, Session, Stretch, keyed_seed, written_text
from cgr.engines.forwarding import ForwardingSession
from cgr.errors import MissingCapability, UsageError
from cgr.lab.record.cluster import ClusterEngine
from cgr.lab.record.jobs import Jobs, Progress
from cgr.lab.store import DEFAULT, GENERATE, Key, Store
from cgr.lab.store.config import NATURAL, Asking, ProbeSet, RunConfig
from cgr.lab.store.recorded import RecordedTrace
from cgr.lab.store.shard import Shard
from cgr.prompts import examples_of, prompt_text
from cgr.reason import Abstention
from cgr.records import Ended, Question
from cgr.rules import GO_ON, WAIT, Action, BudgetForcing, FixedBudget, KeepThinking, Rule, Seen, next_multiple
from cgr.settings import Settings, default_aggregate, options_note
from cgr.solve import Model

Made = tuple[RecordedTrace, tuple[int, ...], float]  # a new trace, the ids of its prompt, and the seconds that it took
FORCING = ("budget-forcing", "cgr-forced")
WRITTEN_TOKENS = 1024
MAX_TRACES = 10_000_000  # the list of them is in memory
MAX_STRETCH = 256  # longer stretches are split, so that progress is shown


@dataclass(frozen=True, kw_only=True)
class AskEvery(Rule):
    """Probe at an interval, decode whole answers, and never stop."""

    interval: int
    name: ClassVar[str] = "ask-every"
    needs: ClassVar[frozenset[str]] = frozenset({"logprobs"})

    def next_probe(self, seen: Seen) -> int | None:
        return next_multiple(seen.at, self.interval)


@dataclass(frozen=True, kw_only=True)
class AskEveryForced(AskEvery):
    """The same, with the thinking forced to continue and probed wherever it wanted to end. `at_most`: how often it is
    forced; None: to the budget.

    Both forcing rules can be replayed from such a trace, `cgr-forced` at any threshold: they are equal until one stops.
    """

    at_most: int | None = None
    text: str = WAIT
    name: ClassVar[str] = "ask-every-forced"
    probes_at_end: ClassVar[bool] = True

    def on_end(self, seen: Seen) -> Action:
        return KeepThinking(self.text) if self.at_most is None or seen.forced < self.at_most else GO_ON


@dataclass(frozen=True, slots=True)
class Plan:
    """The traces to generate. Of `settings`, only what a trace or its final answer depends on is used.

    A rule that forces the thinking to continue changes the traces; every other rule is replayed on natural ones. With a
    `shard`, only its part of them is generated.
    """

    questions: tuple[Question, ...]
    seeds: int
    settings: Settings = field(default_factory=Settings)
    source: str = ""
    probe: bool = False
    logprobs: bool = False
    written_tokens: int = WRITTEN_TOKENS
    shard: Shard | None = None

    def __post_init__(self) -> None:
        if self.seeds < 1:
            raise UsageError(f"With {self.seeds} seeds there are no traces.", "Use --seeds 1 or more.")
        if self.seeds * len(self.questions) > MAX_TRACES:
            raise UsageError(
                f"{self.seeds} seeds of {len(self.questions)} questions are too many traces for one run.",
                f"A run has at most {MAX_TRACES}: use fewer --seeds or a smaller --limit.",
            )
        if self.forced and (other := self.settings.parameters.keys() - {"text", "at_most"}):
            raise UsageError(
                f"{min(other)!r} does not change how traces are recorded.",
                "Set only text and at_most here; see `cgr rules`.",
            )
        if self.written_tokens < 0:
            raise UsageError("A model cannot write fewer than 0 tokens.", "Use --written-tokens 0 to write nothing.")
        if not self.questions:
            raise UsageError("There are no questions.", "Choose a source that contains some.")

    @property
    def forced(self) -> bool:
        """Whether the thinking is forced to continue where the model wants to end it."""
        return self.settings.rule in FORCING

    def wanted(self) -> list[Key]:
        """Every question and seed, seed by seed: each question is done once before any is done twice."""
        every = [(question.id, seed) for seed in range(self.seeds) for question in self.questions]
        return every if self.shard is None else [key for key in every if self.shard.holds(*key)]

    def config(self, info: ModelInfo, capabilities: Capabilities, stored: RunConfig | None = None) -> RunConfig:
        """The configuration of this plan on this model, with all defaults resolved. An aggregate that was not chosen is
        that of the `stored` run, if there is one."""
        resolved = self.settings.resolve(info)
        default = stored.asking.aggregate if stored else default_aggregate(self.questions, capabilities)
        settings = replace(self.settings, aggregate=self.settings.aggregate or default)
        if self.logprobs and not capabilities.thinking_logprobs:
            raise MissingCapability(
                f"{info.engine} does not return the log-probabilities of thinking.", "Leave out --logprobs."
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
            system=self.settings.system,
            examples=examples_of(self.settings.examples),
            asking=Asking.of(settings, info),
            written_tokens=self.written_tokens,
            logprobs=self.logprobs,
            probe=self.probe,
            rule=self.settings.rule if self.forced else NATURAL,
            shard=str(self.shard or ""),
            **{f"forced_{name}": value for name, value in self.settings.parameters.items() if self.forced},
        )

    def notes(self, capabilities: Capabilities) -> tuple[str, ...]:
        """What a user should know before the traces are generated."""
        return options_note(self.questions, self.settings.aggregate, capabilities)


def generate(folder: Path, plan: Plan, model: Model, *, sessions: int = 1, progress: Progress | None = None) -> None:
    """Generate every trace of the plan that the run lacks. After an interruption, the same call continues."""
    model.run(lambda: agenerate(folder, plan, model.engine, sessions=sessions, progress=progress))


async def agenerate(
    folder: Path, plan: Plan, engine: Engine, *, sessions: int = 1, progress: Progress | None = None
) -> None:
    """`generate` for asynchronous code, with this many sessions of an engine at once."""
    progress = progress or Progress(quiet=True)
    await engine.connect()
    config = plan.config(engine.info, engine.capabilities, Store.stored_config(folder))
    questions = {question.id: question for question in plan.questions}
    with Store.create(folder, config) as store:
        store.add_questions(plan.questions)
        probed = (engine.prober or engine).info
        made_here = ProbeSet("interval", config.interval, config.asking, probed.name, probed.fingerprint)
        probe_set = store.add_probe_set(made_here, DEFAULT) if plan.probe else None
        wanted, made = plan.wanted(), set(store.made())
        missing = [key for key in wanted if key not in made]

        make_one = engine.trace if isinstance(engine, ClusterEngine) else partial(generate_trace, engine)

        async def make(key: Key) -> Made:
            return await make_one(config, questions[key[0]], key[1], progress.add_tokens)

        def keep(key: Key, made: Made) -> None:
            trace, prompt_ids, seconds = made
            progress.add_trace(trace)
            store.add_trace(trace, prompt_ids=prompt_ids, seconds=seconds, probe_set=probe_set)

        progress.begin(store, missing)
        progress.follow(engine)
        with progress.showing("Thinking", len(wanted), len(wanted) - len(missing)):
            await Jobs(store, lambda key: [GENERATE], progress, sessions).run(missing, make, keep)


async def generate_trace(
    engine: Engine, config: RunConfig, question: Question, seed: int, on_tokens: Callable[[int], None]
) -> Made:
    """One question under one seed: the thinking to its end or to the budget, and the final answer."""
    start = time.monotonic()
    spec = config.asking.spec(question.format, question.text)
    asked = config.prompt(question.text)
    prompt = await engine.prompt(asked)
    sampling = config.sampling(keyed_seed(seed, prompt_text(asked)))
    room = config.budget + await answer_room(engine, spec)
    # A second model has its own chat template, so it needs the text and not the ids.
    session = await engine.open(prompt if engine.prober is None else asked, sampling, room=room)
    recording = RecordingSession(session, on_tokens, logprobs=config.logprobs)
    try:
        outcome = await Driver(engine, recording, spec, full=True).run(_rule(config), config.budget, Abstention())
        # the model writes its answer if it ended its thinking and not its turn
        writes = outcome.decision.stop_cause == "end_of_thinking" and not outcome.decision.eos
        limit = config.written_tokens or 0
        written = await written_text(session.write(limit)) if writes and limit else ""
    finally:
        await session.close()
    trace = _recorded(question, seed, config.budget, outcome, recording, written)
    return trace, prompt, time.monotonic() - start


def _rule(config: RunConfig) -> Rule:
    """The rule that the traces of a run are generated with."""
    if config.rule in FORCING:
        how: dict[str, Any] = {"text": config.forced_text, "at_most": config.forced_at_most}
        return AskEveryForced(interval=config.interval, **how) if config.probe else BudgetForcing(**how)
    return AskEvery(interval=config.interval) if config.probe else FixedBudget()


def _recorded(
    question: Question, seed: int, budget: int, outcome: Outcome, recording: RecordingSession, written: str
) -> RecordedTrace:
    """The trace of an outcome that did not stop the thinking."""
    decision = outcome.decision
    if decision.final is None or decision.stop_cause in ("certainty", "gave_up"):
        raise UsageError("A trace that was stopped is not complete.", "Record with a rule that never stops.")
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
        ids=outcome.ids,
        text=outcome.thinking,
        written=written,
        logprobs=tuple(recording.logprobs),
        tops=tuple(recording.tops),
        forced=tuple(recording.forced),
    )


class RecordingSession(ForwardingSession):
    """Keeps the log-probabilities and the forced tokens of the thinking, and stays open when the driver closes it."""

    def __init__(self, session: Session, on_tokens: Callable[[int], None], *, logprobs: bool = False) -> None:
        super().__init__(session)
        self.on_tokens, self.keep_logprobs = on_tokens, logprobs
        self.logprobs: list[float] = []
        self.tops: list[float] = []
        self.forced: list[tuple[int, int]] = []
        self.at = 0

    async def think(self, tokens: int, *, ban_end: bool = False, on_text: OnText | None = None) -> Stretch:
        ids: list[int] = []
        while True:
            piece = await self.session.think(min(MAX_STRETCH, tokens - len(ids)), ban_end=ban_end, on_text=on_text)
            ids += piece.ids
            self.logprobs += piece.logprobs
            self.tops += piece.tops
            self.on_tokens(len(piece.ids))
            if piece.ended or len(ids) >= tokens:
                self.at += len(ids)
                return replace(piece, ids=tuple(ids), logprobs=(), tops=())

    async def append(self, ids: Sequence[int]) -> None:
        """Appended tokens were not sampled: their log-probability is NaN."""
        await self.session.append(ids)
        self.forced.append((self.at, len(ids)))
        self.at += len(ids)
        if self.keep_logprobs:
            self.logprobs += [math.nan] * len(ids)
            self.tops += [math.nan] * len(ids)

    async def close(self) -> None:
        """Nothing: the model may still write its answer."""
