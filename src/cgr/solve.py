"""One question from start to end: `solve`, `asolve`, and `open_model` to keep a model loaded for many questions."""

from __future__ import annotations

import os
import weakref
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import aclosing, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

from cgr import sync
from cgr.drive.driver import Driver, Outcome, answer_room
from cgr.drive.events import Event, EventStream, OnEvent
from cgr.engines.base import Engine, ModelInfo, keyed_seed
from cgr.engines.open import EMBEDDED, ModelKeywords, ModelOptions, find_model
from cgr.errors import EngineError, UsageError
from cgr.model.problems import FORM
from cgr.prompts import prompt_text
from cgr.records import Conversation, Probe, Record, StopCause, messages_of
from cgr.settings import PROMPT_ROOM, Resolved, Settings, SolveOptions

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Solution(Record):
    """The answer to a question, how certain it is, why thinking stopped, and what it cost.

    `answer` is None if the model abstained; `certainty` is then that of the withheld answer. `closed` is False if the
    answer did not end within its tokens: then it is incomplete. `probe_model`: the model that was probed, if it is not
    the one that thought. Its probes say when to stop; the answer and its certainty come from the model that thought.
    `in_domain` is False if the model does not know this kind of question, so that its certainty means nothing; None for
    models that cannot tell. `raw_certainty`: the smallest raw probability of the answer's tokens, under any aggregate.
    """

    question: str
    answer: str | None
    certainty: float
    abstained: bool
    stop_cause: StopCause
    rule: str
    threshold: float
    interval: int
    budget: int
    seed: int
    model: str
    engine: str
    thinking_tokens: int
    probe_tokens: int
    answer_tokens: int
    probes: tuple[Probe, ...] = field(repr=False)
    thinking: str = field(repr=False)
    closed: bool = True
    wasted_tokens: int = 0
    forced: int = 0
    eos: bool = False
    probe_model: str | None = None
    in_domain: bool | None = None
    raw_certainty: float | None = None

    def summary(self) -> dict[str, Any]:
        """What `--json` prints: all fields, with each probe as its position, answer, certainties, closed and bound."""
        names = ("at", "answer", "certainty", "raw_certainty", "closed", "bound")
        probes = [{name: getattr(probe, name) for name in names} for probe in self.probes]
        return {name: getattr(self, name) for name in self.__slots__} | {"probes": probes}


class Model:
    """A loaded model. Use it as a context manager, or `close()` it."""

    def __init__(self, engine: Engine) -> None:
        self.engine, self.closed, self._process = engine, False, os.getpid()
        sync.not_for_children(engine)
        self._finalizer: weakref.finalize[..., Model] | None = None

    def solve(
        self, question: Conversation, *, on_event: OnEvent | None = None, **options: Unpack[SolveOptions]
    ) -> Solution:
        """Answer one question. Options are the fields of `cgr.Settings`. Several threads can call it at once, and also code
        in a running event loop, such as a notebook, which it blocks. `on_event` is called in the thread that called it."""
        if on_event is None:
            return self.run(lambda: self.asolve(question, **options))
        call = sync.Call(lambda: _passing_on(self.astream(question, **options), partial(call.in_caller, on_event)))
        self._prepare()
        return call.result()

    async def asolve(
        self,
        question: Conversation,
        *,
        on_event: OnEvent | None = None,
        wait: float | None = None,
        **options: Unpack[SolveOptions],
    ) -> Solution:
        """The same for asynchronous code; as many can run at once as the model has `sessions`.

        `wait`: seconds to wait for a free session before `Busy` is raised; None waits without a limit.
        """
        if on_event is None:
            return await self._solve(question, wait, options)
        return await _passing_on(self.astream(question, wait=wait, **options), on_event)

    def astream(
        self, question: Conversation, *, wait: float | None = None, **options: Unpack[SolveOptions]
    ) -> EventStream[Solution]:
        """The events of answering one question, as an async iterator; its `result` is the solution.

        Leaving the iteration early cancels the work. Options are the fields of `cgr.Settings`.
        """
        return EventStream(lambda stream: self._solve(question, wait, options, stream))

    async def _solve(
        self, question: Conversation, wait: float | None, options: SolveOptions, stream: EventStream[Solution] | None = None
    ) -> Solution:
        settings = Settings.of(**options)
        settings.prompt(question)  # a wrong question is refused before a model is loaded
        await self._connect()
        resolved = settings.resolve(self.engine.info)
        settings.check_prober(self.engine.prober.info if self.engine.prober else None)
        settings, prompt = resolved.settings, resolved.settings.prompt(question)
        spec, overlap = settings.spec(messages_of(question)[-1].content), self._overlap(settings)
        room = resolved.budget + await answer_room(self.engine, spec, resolved.rule.probe_style.over(spec))
        seed = keyed_seed(settings.seed, prompt_text(prompt))
        sampling = replace(resolved.sampling(), seed=seed, limit=resolved.budget)
        session = await self.engine.open(prompt, sampling, room=room, overlap=overlap, wait=wait)
        on_event, ready = (stream.put, stream.room) if stream else (None, None)
        driver = Driver(self.engine, session, spec, overlap=overlap, full=settings.full, on_event=on_event, ready=ready)
        outcome = await driver.run(resolved.rule, resolved.budget, settings.abstention())
        return self._solution(question, resolved, outcome)

    def _solution(self, question: Conversation, resolved: Resolved, outcome: Outcome) -> Solution:
        decision, prober = outcome.decision, self.engine.prober
        return Solution(
            question=messages_of(question)[-1].content,
            answer=decision.answer,
            certainty=decision.certainty,
            abstained=decision.abstained,
            stop_cause=decision.stop_cause,
            rule=resolved.rule.name,
            threshold=resolved.threshold,
            interval=resolved.interval,
            budget=resolved.budget,
            seed=resolved.settings.seed,
            model=self.engine.info.name,
            engine=self.engine.info.engine,
            thinking_tokens=decision.thinking_tokens,
            probe_tokens=decision.probe_tokens,
            answer_tokens=decision.answer_tokens,
            probes=decision.probes,
            thinking=outcome.thinking,
            closed=decision.closed,
            wasted_tokens=outcome.wasted_tokens,
            forced=decision.forced,
            eos=decision.eos,
            probe_model=prober.info.name if prober else None,
            in_domain=in_domain(resolved.settings.turns(question), self.engine.info),
            raw_certainty=decision.raw_certainty,
        )

    def _overlap(self, settings: Settings) -> bool:
        """As requested, else the engine's default: servers overlap, models in this process do not."""
        capabilities = self.engine.capabilities
        if settings.overlap and not capabilities.overlap:
            raise UsageError("This model was opened without overlap.", "Open it with open_model(..., overlap=True).")
        return capabilities.overlaps if settings.overlap is None else settings.overlap

    def connect(self) -> None:
        """Load the model or reach its server, unless that was done already."""
        self.run(self._connect)

    async def _connect(self) -> None:
        self._refuse_unusable()
        await self.engine.connect()

    def _refuse_unusable(self) -> None:
        """Closed, or loaded before a fork: threads that compute do not exist in a child, and one would wait forever."""
        if self.closed:
            raise UsageError("This model is closed.", "Open it again: open_model(...).")
        if os.getpid() == self._process:
            return
        if self._computes_here():
            raise UsageError(
                "This model was loaded before the process was forked, so it cannot compute here.",
                "Start child processes with the method 'spawn', or load the model only in the children.",
            )
        self._process, self._finalizer = os.getpid(), None

    def _computes_here(self) -> bool:
        """Whether the model was loaded and computes on threads of the process that loaded it."""
        with suppress(EngineError):  # not connected yet
            return any(engine.info.threads for engine in (self.engine, self.engine.prober) if engine)
        return False

    def run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """The result of asynchronous work that uses this model, from synchronous code."""
        self._prepare()
        return sync.run(work)

    def _prepare(self) -> None:
        """The connections of a model that nobody closed are closed when it is collected or the process ends."""
        self._refuse_unusable()
        if self._finalizer is None or not self._finalizer.alive:
            self._finalizer = weakref.finalize(self, _close, os.getpid(), sync.background_loop(), self.engine)

    def close(self) -> None:
        """Close the connections that `solve` opened. The model stays loaded, but it is refused from now on."""
        self.closed = True
        if self._finalizer and self._finalizer.detach() and os.getpid() == self._process:
            sync.run(self.engine.close)

    async def aclose(self) -> None:
        """Close the connections of this event loop. The model can be used again, also on another event loop."""
        await self.engine.close()

    def __enter__(self) -> Self:
        self.connect()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        await self._connect()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


def in_domain(question: Conversation, info: ModelInfo) -> bool | None:
    """Whether the model knows this kind of question, by its form; None for models that cannot tell."""
    texts = [message.content.strip() for message in messages_of(question)]
    return len(texts) == 1 and FORM.fullmatch(texts[0]) is not None if info.shipped else None


async def _passing_on(stream: EventStream[Solution], show: Callable[[Event], Awaitable[None] | None]) -> Solution:
    async with aclosing(stream.__aiter__()) as events:
        async for event in events:
            if (shown := show(event)) is not None:
                await shown
    return stream.result


def _close(process: int, background: sync.BackgroundLoop, engine: Engine) -> None:
    if os.getpid() == process and background.thread.is_alive():
        background.start(engine.close)


def open_model(model: str | None = None, **options: Unpack[ModelKeywords]) -> Model:
    """Load a model: nothing for the embedded one, a `.gguf` file, a hub id, `hf:ID`, `vllm:ID` or `llama-server:FILE`; or
    reach one at a server, by `base_url` (or CGR_BASE_URL and CGR_API_KEY, for a model that is not on this machine).

    Options are the fields of `cgr.engines.open.ModelOptions`. `sessions` is how many questions it can think about at
    once. Each gets a context that holds the `budget` you mean to use; `context` sets it directly. `think_tags` names the
    tags of a model whose files do not. `probe_model` is a second model that is probed in place of the first.
    docs/engines.md explains the rest. Where an event loop is running, the model is loaded by `async with`, by `with`, or by
    the first question.
    """
    opened = Model(ModelOptions.of(model=model, **options).engine())
    if not sync.in_event_loop():
        opened.connect()
    return opened


def solve(
    question: str, model: str | None = None, *, on_event: OnEvent | None = None, **options: Unpack[SolveOptions]
) -> Solution:
    """Answer one question and stop thinking when the model is sure. Options are the fields of `cgr.Settings`.

    >>> import cgr
    >>> cgr.solve("Start with x=864. Apply x=(8x+97) mod 1000, 2 times. Find x.").answer  # doctest: +SKIP
    '169'
    """
    settings = Settings.of(**options)
    settings.prompt(question)
    with open_model(model, overlap=settings.overlap, budget=settings.budget) as loaded:
        return loaded.solve(question, on_event=on_event, **options)


async def asolve(
    question: str, model: str | None = None, *, on_event: OnEvent | None = None, **options: Unpack[SolveOptions]
) -> Solution:
    """The same for asynchronous code."""
    settings = Settings.of(**options)
    settings.prompt(question)
    async with open_model(model, overlap=settings.overlap, budget=settings.budget) as loaded:
        return await loaded.asolve(question, on_event=on_event, **options)


__all__ = ["EMBEDDED", "PROMPT_ROOM", "Model", "Solution", "asolve", "find_model", "open_model", "solve"]
