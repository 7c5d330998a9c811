"""One question from start to end: `solve`, `asolve`, and `open_model` to keep a model loaded for many questions."""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Callable, Coroutine
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any, Self, TypeVar

from cgr import sync
from cgr.drive.driver import Driver, Outcome, answer_room
from cgr.drive.events import EventStream, OnEvent
from cgr.engines.base import Engine, ModelInfo, keyed_seed
from cgr.engines.open import EMBEDDED, ModelOptions, find_model
from cgr.errors import UsageError
from cgr.model.problems import FORM
from cgr.records import Conversation, Probe, Record, StopCause, messages_of
from cgr.settings import PROMPT_ROOM, Resolved, Settings

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Solution(Record):
    """The answer to a question, how certain it is, why thinking stopped, and what it cost.

    `answer` is None if the model abstained; `certainty` is then that of the withheld answer. `closed` is False if the
    answer did not end within its tokens: then it is incomplete. `probe_model`: the model that was probed, if it is not
    the one that thought. Its probes say when to stop; the answer and its certainty come from the model that thought.
    `in_domain` is False if the model does not know this kind of question, so that its certainty means nothing; None for
    models that cannot tell.
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

    def summary(self) -> dict[str, Any]:
        """What `--json` prints: all fields, with each probe as its position, answer, certainty, closed and bound."""
        names = ("at", "answer", "certainty", "closed", "bound")
        probes = [{name: getattr(probe, name) for name in names} for probe in self.probes]
        return {name: getattr(self, name) for name in self.__slots__} | {"probes": probes}


class Model:
    """A loaded model. Use it as a context manager, or `close()` it."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._runner: asyncio.Runner | None = None
        self._finalizer: weakref.finalize[..., Model] | None = None

    def solve(self, question: Conversation, *, on_event: OnEvent | None = None, **options: Any) -> Solution:
        """Answer one question. Options are the fields of `cgr.Settings`."""
        return self._run(lambda: self.asolve(question, on_event=on_event, **options))

    async def asolve(
        self, question: Conversation, *, on_event: OnEvent | None = None, wait: float | None = None, **options: Any
    ) -> Solution:
        """The same for asynchronous code; as many can run at once as the model has `sessions`.

        `wait`: seconds to wait for a free session before `Busy` is raised; None waits without a limit.
        """
        if on_event is None:
            return await self._solve(question, wait, options)
        stream = self.astream(question, wait=wait, **options)
        async with aclosing(stream.__aiter__()) as events:
            async for event in events:
                on_event(event)
        return stream.result

    def astream(self, question: Conversation, *, wait: float | None = None, **options: Any) -> EventStream[Solution]:
        """The events of answering one question, as an async iterator; its `result` is the solution.

        Leaving the iteration early cancels the work. Options are the fields of `cgr.Settings`.
        """
        return EventStream(lambda stream: self._solve(question, wait, options, stream))

    async def _solve(
        self,
        question: Conversation,
        wait: float | None,
        options: dict[str, Any],
        stream: EventStream[Solution] | None = None,
    ) -> Solution:
        settings = Settings.of(**options)
        await self.engine.connect()
        resolved = settings.resolve(self.engine.info)
        if settings.calibration is not None:
            settings.promise.check_prober(self.engine.prober.info if self.engine.prober else None)
        settings, spec = resolved.settings, resolved.settings.spec()
        overlap = self._overlap(settings)
        room = resolved.budget + await answer_room(self.engine, spec, resolved.rule.probe_style.over(spec))
        prompt = settings.prompt(question)
        seed = keyed_seed(settings.seed, "\n".join(message.content for message in messages_of(prompt)))
        sampling = replace(resolved.sampling(), seed=seed, limit=resolved.budget)
        session = await self.engine.open(prompt, sampling, room=room, overlap=overlap, wait=wait)
        driver = Driver(
            self.engine,
            session,
            spec,
            overlap=overlap,
            full=settings.full,
            on_event=stream.put if stream else None,
            ready=stream.room if stream else None,
        )
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
            in_domain=in_domain(question, self.engine.info),
        )

    def _overlap(self, settings: Settings) -> bool:
        """As requested, else the engine's default: servers overlap, models in this process do not."""
        capabilities = self.engine.capabilities
        if settings.overlap and not capabilities.overlap:
            raise UsageError("This model was opened without overlap.", "Open it with open_model(..., overlap=True).")
        return capabilities.overlaps if settings.overlap is None else settings.overlap

    def connect(self) -> None:
        """Load the model or reach its server, unless that was done already. Not for asynchronous code."""

        async def connect_only() -> None:
            await self.engine.connect()
            await self.engine.close()  # this loop's connections; the model stays loaded

        _refuse_event_loop()
        with asyncio.Runner() as runner:
            sync.run(runner.get_loop(), connect_only)

    def _run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        return sync.run(self._ready().get_loop(), work)

    def _ready(self) -> asyncio.Runner:
        _refuse_event_loop()
        if self._runner is None:
            self._runner = asyncio.Runner()
            self._runner.get_loop()
            # closes the connections of a model that nobody closed, when it is collected or the process ends
            self._finalizer = weakref.finalize(self, _close, self._runner, self.engine)
        return self._runner

    def close(self) -> None:
        """Close the connections that `solve` opened. The model stays loaded as long as this object exists."""
        if self._finalizer:
            self._finalizer()
            self._runner = self._finalizer = None

    async def aclose(self) -> None:
        """The same for asynchronous code."""
        await self.engine.close()

    def __enter__(self) -> Self:
        self.connect()
        self._ready()  # now, so that a Ctrl-C during `solve` never meets an event loop that is half made
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        await self.engine.connect()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


def in_domain(question: Conversation, info: ModelInfo) -> bool | None:
    """Whether the model knows this kind of question, by its form; None for models that cannot tell."""
    if not info.shipped:
        return None
    messages = messages_of(question)
    return len(messages) == 1 and FORM.fullmatch(messages[0].content.strip()) is not None


def _close(runner: asyncio.Runner, engine: Engine) -> None:
    if _in_event_loop():  # where no other loop can run: a model may be collected at any moment
        thread = threading.Thread(target=_close, args=(runner, engine))
        thread.start()
        thread.join()
        return
    with runner:
        runner.run(engine.close())


def _refuse_event_loop() -> None:
    if _in_event_loop():
        raise UsageError("An event loop is running here.", "Use `await model.asolve(...)` instead.")


def _in_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def open_model(model: str | None = None, **options: Any) -> Model:
    """Load a model: nothing for the embedded one, a `.gguf` file, a hub id, `hf:ID`, `vllm:ID` or `llama-server:FILE`; or
    reach one at a server, by `base_url` (or CGR_BASE_URL and CGR_API_KEY, for a model that is not on this machine).

    Options are the fields of `cgr.engines.open.ModelOptions`. `sessions` is how many questions it can think about at
    once. Each gets a context that holds the `budget` you mean to use; `context` sets it directly. `think_tags` names the
    tags of a model whose files do not. `probe_model` is a second model that is probed in place of the first.
    docs/engines.md explains the rest. In asynchronous code the model is loaded by `async with`, or by the first `await
    model.asolve(...)`.
    """
    opened = Model(ModelOptions.of(model=model, **options).engine())
    if not _in_event_loop():
        opened.connect()
    return opened


def solve(question: str, model: str | None = None, *, on_event: OnEvent | None = None, **options: Any) -> Solution:
    """Answer one question and stop thinking when the model is sure.

    >>> import cgr
    >>> cgr.solve("Start with x=864. Apply x=(8x+97) mod 1000, 2 times. Find x.").answer  # doctest: +SKIP
    '169'
    """
    settings = Settings.of(**options)
    with open_model(model, overlap=settings.overlap, budget=settings.budget) as loaded:
        return loaded.solve(question, on_event=on_event, **options)


async def asolve(question: str, model: str | None = None, *, on_event: OnEvent | None = None, **options: Any) -> Solution:
    """The same for asynchronous code."""
    settings = Settings.of(**options)
    async with open_model(model, overlap=settings.overlap, budget=settings.budget) as loaded:
        return await loaded.asolve(question, on_event=on_event, **options)


__all__ = ["EMBEDDED", "PROMPT_ROOM", "Model", "Solution", "asolve", "find_model", "open_model", "solve"]
