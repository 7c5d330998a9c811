"""One question, end to end: `solve`, `asolve`, and `open_model` to keep a model loaded for many questions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from cgr import sync as running
from cgr.drive.driver import Driver, OnEvent, answer_room
from cgr.engines.base import Engine, keyed_seed
from cgr.engines.open import EMBEDDED, ModelOptions, find_model
from cgr.errors import UsageError
from cgr.records import Decision, Probe, Record, StopCause
from cgr.settings import PROMPT_ROOM, Resolved, Settings

if TYPE_CHECKING:
    from cgr.engines.completions.connection import Patience

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Solution(Record):
    """The answer to a question, how sure it is, why thinking stopped, and what it cost.

    `answer` is None where the model abstained; `certainty` is then that of the answer it withheld. `closed` is False where
    the answer did not end within its tokens: it is only a beginning then. `probe_model`: who was asked, where that was not
    the model that thought; its probes say when to stop, the answer and its certainty are those of the model that thought.
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
        resolved = Settings.of(**options).resolve(self.engine.info)
        settings, spec = resolved.settings, resolved.settings.spec()
        overlap = self._overlap(settings)
        room = resolved.budget + await answer_room(self.engine, spec, resolved.rule.probe_style.over(spec))
        prompt = settings.prompt(question)
        sampling = replace(resolved.sampling(), seed=keyed_seed(settings.seed, prompt), limit=resolved.budget)
        session = await self.engine.open(prompt, sampling, room=room, overlap=overlap)
        driver = Driver(self.engine, session, spec, overlap=overlap, full=settings.full, on_event=on_event)
        outcome = await driver.run(resolved.rule, resolved.budget, settings.abstention())
        return self._solution(question, resolved, outcome.decision, outcome.thinking, outcome.wasted_tokens)

    def _solution(self, question: str, resolved: Resolved, decision: Decision, thinking: str, wasted: int) -> Solution:
        prober: Engine | None = getattr(self.engine, "prober", None)
        return Solution(
            question=question,
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
            thinking=thinking,
            closed=decision.closed,
            wasted_tokens=wasted,
            forced=decision.forced,
            eos=decision.eos,
            probe_model=prober.info.name if prober else None,
        )

    def _overlap(self, settings: Settings) -> bool:
        """As was asked, else as the engine does by itself: servers overlap, models here do not."""
        capabilities = self.engine.capabilities
        if settings.overlap and not capabilities.overlap:
            raise UsageError("This model was opened without overlap.", "Open it with open_model(..., overlap=True).")
        return capabilities.overlaps if settings.overlap is None else settings.overlap

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
    overlap: bool | None = None,
    budget: int | None = None,
    context: int | None = None,
    threads: int | None = None,
    think_tags: str | None = None,
    base_url: str | Sequence[str] = (),
    api_key: str | None = None,
    tokenizer: str | None = None,
    device: str | None = None,
    dtype: str | None = None,
    dialect: Sequence[str] = (),
    chunk: int | None = None,
    patience: Patience | None = None,
    probe_model: str | None = None,
) -> Model:
    """Load a model: nothing for the embedded one, a `.gguf` file, a hub id, `hf:ID`, `vllm:ID` or `llama-server:FILE`; or
    reach one at a server, by `base_url` (CGR_BASE_URL, and CGR_API_KEY, say the same for a model that is not here).

    `sessions` is how many questions it can think about at once. Each gets a context that holds the budget you mean to use;
    `context` sets it outright. `think_tags` names the tags of a model that does not say them itself. `probe_model` is a
    second model that is asked instead of the first, and says when to stop. docs/engines.md has the rest.
    """
    opening = ModelOptions(
        model=model,
        sessions=sessions,
        overlap=bool(overlap),
        context=context,
        budget=budget,
        threads=threads,
        think_tags=think_tags,
        base_url=(base_url,) if isinstance(base_url, str) else tuple(base_url),
        api_key=api_key,
        tokenizer=tokenizer,
        device=device,
        dtype=dtype,
        dialect=tuple(dialect),
        chunk=chunk,
        patience=patience,
        probe_model=probe_model,
    )
    return Model(opening.engine())


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
