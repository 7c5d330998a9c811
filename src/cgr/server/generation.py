"""One request as the server understands it, whatever API it came by, and the events of answering it.

`Generation` is the request. `Answer` runs it and yields `Begun`, `ReasoningDelta`, `ProbeMade`, `Stopped`, `AnswerDelta`
and at last `Ended` with the result. A renderer, such as chat.py, turns these into the replies of one API.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from cgr.drive.answer import AnswerStyle, Style
from cgr.drive.driver import Driver, Outcome, answer_room
from cgr.drive.events import Answering, Decided, Event, EventStream, Probed, Thinking
from cgr.engines.base import Engine, Prompt, Sampling, Session, is_ids, keyed_seed
from cgr.errors import DoesNotFit
from cgr.prompts import prompt_text
from cgr.records import Conversation, Decision, Probe, Token, messages_of
from cgr.server.config import Mode, ServeConfig
from cgr.server.shadow import noted_stop, shadowed
from cgr.server.tags import TagFilter
from cgr.settings import Resolved, Settings

if TYPE_CHECKING:
    from cgr.server.audit.promise import Coverage
    from cgr.server.result import Result

ShowThinking = Literal["text", "summary", "omitted"]
RESERVED = 512  # tokens kept for the answer, or a quarter of max_tokens if that is less
LEAST_RESERVED = 128  # enough for an answer if otherwise the whole budget would not fit into the context


@dataclass(frozen=True, slots=True)
class Generation:
    """A request. `prompt`: messages, or the text or ids of a whole prompt (`raw`). `max_tokens`: thinking and answer
    together. `top_logprobs`: log-probabilities of the answer with this many alternatives; None: none. `thinks`: False to
    answer without thinking. `detail`: why it is not probed, if it is not. `shown`: how the thinking is shown, where an API
    has several ways. `repeated`: fields of the request that the reply repeats. `recorded`: the finished reply goes to the
    recorder."""

    id: str
    model: str
    prompt: Prompt
    settings: Settings
    sampling: Sampling
    mode: Mode = "on"
    raw: bool = False
    max_tokens: int | None = None
    style: Style = "full"
    wrap_up: str = ""
    sentence_end: bool = True
    thinks: bool = True
    stream: bool = False
    include_usage: bool = False
    stream_probes: bool = False
    top_logprobs: int | None = None
    detail: str = ""
    shown: ShowThinking = "text"
    repeated: Mapping[str, Any] = field(default_factory=dict)
    recorded: bool = False


@dataclass(frozen=True, slots=True)
class Begun:
    """The session is open. `overhead`: seconds from the request to here, without the time in the queue."""

    prompt_tokens: int
    overhead: float


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """Some text was thought."""

    text: str


@dataclass(frozen=True, slots=True)
class ProbeMade:
    """A probe was made."""

    probe: Probe


@dataclass(frozen=True, slots=True)
class Stopped:
    """The thinking is over."""

    decision: Decision


@dataclass(frozen=True, slots=True)
class AnswerDelta:
    """Some text of the answer was written."""

    text: str
    logprobs: tuple[Token, ...] = ()


@dataclass(frozen=True, slots=True)
class Ended:
    """The reply is complete."""

    result: Result


ServeEvent = Begun | ReasoningDelta | ProbeMade | Stopped | AnswerDelta | Ended


class Answer:
    """Answers one request, as an asynchronous iterator of events. Leaving the iteration cancels all work for it.

    `follow`: gets it once its session is open; it sets `coverage`, whether a promise covers the reply, and `chosen`, if the
    request is audited. `result`: once the reply is complete.

    `received`: when the request came (perf_counter). `waited`: seconds in the queue. `phase`: what is going on, for those
    who cancel it. `pass_on`: is called with texts of thinking, so that they can be sent without an event of their own;
    False if they cannot.
    """

    def __init__(self, engine: Engine, config: ServeConfig, request: Generation, received: float, waited: float = 0.0):
        self.engine, self.config, self.request = engine, config, request
        self.received, self.waited = received, waited
        self.phase = "prompt"
        self._filter: TagFilter | None = None
        self.follow: Callable[[Answer, Opened], None] | None = None
        self.pass_on: Callable[[list[str]], bool] | None = None
        self.opened: Opened | None = None
        self.coverage: Coverage | None = None
        self.chosen: asyncio.Task[int] | None = None
        self.result: Result | None = None

    async def __aiter__(self) -> AsyncGenerator[ServeEvent, None]:
        async with aclosing(self.batches()) as batches:
            async for events in batches:
                for event in events:
                    yield event

    async def batches(self) -> AsyncGenerator[list[ServeEvent], None]:
        """The events that are there, together, so that they can be sent together."""
        opened = self.opened = await self._open()
        try:
            if self.follow:
                self.follow(self, opened)
            overhead = time.perf_counter() - self.received - self.waited
            yield [Begun(opened.prompt_tokens, overhead)]
            stream = EventStream(opened.run, self._pass_on if self.pass_on else None)
            async with aclosing(stream.batches()) as batches:
                async for events in batches:
                    if shown := [one for one in map(self._shown, events) if one is not None]:
                        yield shown
            rest = self._filter.flush() if self._filter else ""
            self.result = self._result(opened, stream.result, overhead)
            yield [AnswerDelta(rest), Ended(self.result)] if rest else [Ended(self.result)]
        finally:
            await opened.session.close()

    def _pass_on(self, events: deque[Event]) -> None:
        texts: list[str] = []
        for event in events:
            if not isinstance(event, Thinking):
                break
            texts.append(event.text)
        if texts and self.pass_on and self.pass_on(texts):
            for _ in texts:
                events.popleft()

    def _shown(self, event: object) -> ServeEvent | None:
        if isinstance(event, Thinking):  # first and without a pattern: this runs for every token of every stream
            self.phase = "thinking"
            return ReasoningDelta(event.text) if event.text else None
        match event:
            case Probed(probe):
                return ProbeMade(probe)
            case Decided(decision):
                self.phase = "answer"
                return Stopped(decision)
            case Answering(text, _, logprobs):
                return self._answer_delta(text, logprobs)
        return None

    def _answer_delta(self, text: str, logprobs: tuple[Token, ...]) -> AnswerDelta | None:
        if self._filter is None:
            info = self.engine.info
            self._filter = TagFilter((info.open_tag, info.close_tag))
        kept = text if self.request.raw else self._filter.feed(text)
        return AnswerDelta(kept, logprobs) if kept or logprobs else None

    def _result(self, opened: Opened, outcome: Outcome, overhead: float) -> Result:
        from cgr.server.result import Result

        rule, name = opened.resolved.rule, self.engine.info.name
        noted, covered = noted_stop(rule), self.coverage
        return Result(
            self.request, self.config, opened.resolved, outcome, opened.prompt_tokens, overhead, name, noted, covered
        )

    # Preparation

    async def _open(self) -> Opened:
        request, engine = self.request, self.engine
        thinks = request.thinks and request.max_tokens != 1  # of one token, nothing would be left for the answer
        settings = request.settings if thinks else replace(request.settings, rule="no-thinking", parameters={})
        budget = _budget(settings.budget, request.max_tokens)
        resolved = replace(settings, budget=None).resolve(engine.info)
        prompt, ids = await self._prompt(settings)
        spec = resolved.settings.spec()
        room = await answer_room(engine, spec, resolved.rule.probe_style.over(spec))
        budget = self._fitting(budget or resolved.budget, len(ids), room)
        resolved = replace(settings, budget=budget).resolve(engine.info)
        if request.mode == "shadow":
            resolved = replace(resolved, rule=shadowed(resolved.rule))
        sampling = self._sampling(resolved, prompt, ids, budget)
        overlap = engine.capabilities.overlaps if settings.overlap is None else settings.overlap
        given = prompt if engine.prober else ids
        opening = partial(engine.open, given, sampling, room=budget + room)
        session = await opening(overlap=overlap)
        driver = Driver(
            engine, session, resolved.settings.spec(), overlap=overlap, full=settings.full, style=self._style(resolved)
        )
        return Opened(session, driver, resolved, budget, len(ids), opening)

    async def _prompt(self, settings: Settings) -> tuple[Prompt, tuple[int, ...]]:
        """The prompt, and its ids up to the open think tag."""
        request, engine = self.request, self.engine
        if is_ids(request.prompt):
            return request.prompt, tuple(request.prompt)
        if request.raw:
            text, tag = str(request.prompt), engine.info.open_tag
            whole = text if text.rstrip().endswith(tag) else f"{text}{tag}\n"
            ids = await engine.encode(whole)
            return ids, ids
        conversation: Conversation = settings.prompt(tuple(messages_of(request.prompt)))  # type: ignore[arg-type]
        return conversation, await engine.prompt(conversation)

    def _sampling(self, resolved: Resolved, prompt: Prompt, ids: tuple[int, ...], budget: int) -> Sampling:
        """As in `cgr solve`: the seed is keyed by the question."""
        seed, inspected = self.request.sampling.seed, resolved.sampling().logprobs
        key = str(ids) if is_ids(prompt) else prompt_text(prompt)  # type: ignore[arg-type]
        stops = tuple(stop for stop in self.request.sampling.stop if not stop.isspace())
        return replace(self.request.sampling, seed=keyed_seed(seed, key), limit=budget, logprobs=inspected, stop=stops)

    def _style(self, resolved: Resolved) -> AnswerStyle:
        request = self.request
        wait = resolved.interval // 10 if request.sentence_end else 0
        return AnswerStyle(
            request.style,
            request.max_tokens,
            request.wrap_up,
            wait,
            self.config.abstain_message,
            probed=request.mode != "off",
            blank_stops=tuple(stop for stop in request.sampling.stop if stop.isspace()),
        )

    def _fitting(self, budget: int, prompt: int, room: int) -> int:
        """The budget, lowered to what the context holds beside the prompt and an answer."""
        free = self.engine.info.context - prompt
        left = free - budget  # a model's own budget leaves some room: the budget of a promise must not be lowered for more
        reserved = left if LEAST_RESERVED <= left < RESERVED else min(RESERVED, free // 4)
        fits = min(budget, free - max(room, reserved))
        if fits < 1:
            raise DoesNotFit(
                f"The prompt has {prompt} tokens of a context of {self.engine.info.context}: there is no room to think.",
                "Shorten the messages.",
            )
        return fits


@dataclass(frozen=True, slots=True)
class Opened:
    """A session that is ready to run. `reopen`: another session on the same prompt and seed, from its beginning."""

    session: Session
    driver: Driver
    resolved: Resolved
    budget: int
    prompt_tokens: int
    reopen: Callable[[], Awaitable[Session]]

    async def run(self, stream: EventStream[Outcome]) -> Outcome:
        """Think, decide and answer; events go to the stream."""
        self.driver.on_event, self.driver.ready = stream.put, stream.room
        settings = self.resolved.settings
        return await self.driver.run(self.resolved.rule, self.budget, settings.abstention())


def _budget(given: int | None, max_tokens: int | None) -> int | None:
    """The thinking budget: as given, and such that tokens for the answer remain of `max_tokens`."""
    if max_tokens is None:
        return given
    most = max(max_tokens - max(min(RESERVED, max_tokens // 4), 1), 1)
    return most if given is None else min(given, most)
