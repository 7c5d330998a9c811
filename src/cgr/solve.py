"""One question, end to end: `solve`, `asolve`, and `open_model` to keep a model loaded for many questions."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from cgr import running
from cgr.drive import Driver, OnEvent
from cgr.engines.base import Engine
from cgr.errors import ModelNotFound, UsageError
from cgr.records import Decision, Probe, Record, StopCause
from cgr.settings import BUDGET, PROMPT_ROOM, Fitted, Settings

EMBEDDED = "embedded"
ROOM_FOR_PROMPTS = 4096
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Solution(Record):
    """The answer to a question, how sure it is, why thinking stopped, and what it cost.

    `answer` is None where the model abstained; `certainty` is then that of the answer it withheld. `closed` is False where
    the answer did not end within its tokens: it is only a beginning then.
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

    def summary(self) -> dict[str, Any]:
        """What `--json` prints: everything, with each probe as its position, answer, certainty and whether it closed."""
        names = ("at", "answer", "certainty", "closed", "bound")
        probes = [{name: getattr(probe, name) for name in names} for probe in self.probes]
        return {name: getattr(self, name) for name in self.__slots__} | {"probes": probes}


class Model:
    """A loaded model. Use it as a context manager, or `close()` it."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._runner: asyncio.Runner | None = None

    def solve(self, question: str, *, on_event: OnEvent | None = None, **options: Any) -> Solution:
        """Answer one question. Options are the fields of `cgr.Settings`."""
        return self._run(lambda: self.asolve(question, on_event=on_event, **options))

    async def asolve(self, question: str, *, on_event: OnEvent | None = None, **options: Any) -> Solution:
        """The same, for asynchronous code; many may run at once, up to the model's `sessions`."""
        fitted = Settings.of(**options).fitted(self.engine.info)
        settings, spec = fitted.settings, fitted.settings.spec()
        self._check_overlap(settings)
        suffix = await self.engine.encode(self.engine.info.close_tag + spec.prefix)
        room = fitted.budget + len(suffix) + spec.max_answer_tokens
        session = await self.engine.open(
            settings.prompt(question), settings.sampling(), room=room, overlap=settings.overlap
        )
        driver = Driver(self.engine, session, spec, overlap=settings.overlap, full=settings.full, on_event=on_event)
        outcome = await driver.run(fitted.rule, fitted.budget, settings.abstention())
        return self._solution(question, fitted, outcome.decision, outcome.thinking, outcome.wasted_tokens)

    def _solution(self, question: str, fitted: Fitted, decision: Decision, thinking: str, wasted: int) -> Solution:
        return Solution(
            question=question,
            answer=decision.answer,
            certainty=decision.certainty,
            abstained=decision.abstained,
            stop_cause=decision.stop_cause,
            rule=fitted.rule.name,
            threshold=fitted.settings.threshold,
            interval=fitted.interval,
            budget=fitted.budget,
            seed=fitted.settings.seed,
            model=self.engine.info.name,
            engine=self.engine.info.engine,
            thinking_tokens=decision.thinking_tokens,
            probe_tokens=decision.probe_tokens,
            answer_tokens=decision.answer_tokens,
            probes=decision.probes,
            thinking=thinking,
            closed=decision.closed,
            wasted_tokens=wasted,
            forced=decision.forced,
            eos=decision.eos,
        )

    def _check_overlap(self, settings: Settings) -> None:
        if settings.overlap and not self.engine.capabilities.overlap:
            raise UsageError("This model was opened without overlap.", "Open it with open_model(..., overlap=True).")

    def _run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        return running.run(self._ready().get_loop(), work)

    def _ready(self) -> asyncio.Runner:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            if self._runner is None:
                self._runner = asyncio.Runner()
                self._runner.get_loop()
            return self._runner
        raise UsageError("There is an event loop running here already.", "Use `await model.asolve(...)` instead.")

    def close(self) -> None:
        if self._runner:
            self._runner.run(self.engine.close())
            self._runner.close()
            self._runner = None

    async def aclose(self) -> None:
        await self.engine.close()

    def __enter__(self) -> Self:
        self._ready()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


def open_model(
    model: str | None = None,
    *,
    sessions: int = 1,
    overlap: bool = False,
    budget: int | None = None,
    context: int | None = None,
    threads: int | None = None,
    think_tags: str | None = None,
) -> Model:
    """Load a model: nothing for the embedded one, a `.gguf` file, or a hub id.

    `sessions` is how many questions it can think about at once. Each gets a context that holds the budget you mean to use;
    `context` sets it outright. `think_tags` names the tags of a model that does not say them itself.
    """
    from cgr.engines.chat import parse_tags
    from cgr.engines.llama import LlamaEngine, LlamaOptions

    if sessions < 1:
        raise UsageError(f"{sessions} sessions cannot answer anything.", "Use sessions=1 or more.")
    options = LlamaOptions(
        sessions=sessions,
        overlap=overlap,
        context=context or (budget or BUDGET) + ROOM_FOR_PROMPTS,
        threads=threads,
        tags=parse_tags(think_tags) if think_tags else None,
        name=model or EMBEDDED,
    )
    return Model(LlamaEngine(find_model(model), options))


def find_model(model: str | None) -> Path:
    """The file behind a name."""
    from cgr.engines.hub import download, is_hub_id

    if model is None or model == EMBEDDED:
        return Path(str(files("cgr.model") / "embedded.gguf"))
    if os.path.exists(model):  # unlike Path.exists, it takes a name too long for a file as one that is not there
        return Path(model)
    if is_hub_id(model):
        return download(model)
    raise ModelNotFound(f"There is no model {model!r}.", "Give a .gguf file, a hub id such as ORG/NAME, or nothing.")


def solve(question: str, model: str | None = None, *, on_event: OnEvent | None = None, **options: Any) -> Solution:
    """Answer one question and stop thinking when sure.

    >>> import cgr
    >>> cgr.solve("Start with x=864. Apply x=(8x+97) mod 1000, 2 times. Find x.").answer  # doctest: +SKIP
    '169'
    """
    settings = Settings.of(**options)
    with open_model(model, overlap=settings.overlap, budget=settings.budget) as loaded:
        return loaded.solve(question, on_event=on_event, **options)


async def asolve(question: str, model: str | None = None, *, on_event: OnEvent | None = None, **options: Any) -> Solution:
    """The same, for asynchronous code."""
    settings = Settings.of(**options)
    async with open_model(model, overlap=settings.overlap, budget=settings.budget) as loaded:
        return await loaded.asolve(question, on_event=on_event, **options)


__all__ = ["EMBEDDED", "PROMPT_ROOM", "Model", "Solution", "asolve", "find_model", "open_model", "solve"]
