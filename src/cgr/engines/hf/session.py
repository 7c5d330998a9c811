"""One question under one seed, in one slot of the scheduler."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from cgr.engines.base import Answered, Done, OnText, Reader, Sampling, Stretch, Written, WrittenStop
from cgr.engines.hf.jobs import ExclusiveJob, OnToken, ProbeJob, ProbeQuery, Release, Reserve, Slot, ThinkJob
from cgr.engines.hf.sampler import KeyedRandom
from cgr.engines.hf.scheduler import Scheduler
from cgr.engines.text.chat import EndTag, EndTagWatch, Pair
from cgr.engines.text.detokenize import Detokenizer, HFTokenizer, StopStrings
from cgr.errors import DoesNotFit

MIN_TOP = 5  # alternatives that are returned for each token of an answer, at least


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What a session must know about its model: tokenizer, end tag, tokens that end a turn, tokens that are not text."""

    tokenizer: HFTokenizer
    end_tag: EndTag
    end_ids: frozenset[int]
    control: frozenset[int]
    context: int

    def query(self, suffix: Sequence[int], limit: int, done: Done, top: int) -> ProbeQuery:
        """What a probe decodes; with `top`, control tokens are returned like any other."""
        control = frozenset[int]() if top else self.control
        return ProbeQuery(suffix, limit, done, control, self.tokenizer, max(top, MIN_TOP))


async def run_job(scheduler: Scheduler, job: ThinkJob | ProbeJob | ExclusiveJob) -> Any:
    """Submit a job and wait for its result. When the caller is cancelled, the job is dropped at the next pass."""
    scheduler.submit(job)
    try:
        return await asyncio.wrap_future(job.future)
    except asyncio.CancelledError:
        job.future.cancel()  # at once: `wrap_future` does it only in a later turn of the event loop
        raise


class TransformersSession:
    """A session of the transformers engine.

    Tokens that were sampled but not yet returned are in `_buffer`, or in the watch for the end tag: only an end tag of
    several tokens makes the model think further than requested.
    """

    reader: Reader | None = None

    def __init__(
        self,
        scheduler: Scheduler,
        facts: ModelFacts,
        prompt: Sequence[int],
        sampling: Sampling,
        release: Callable[[], None],
    ) -> None:
        self.scheduler, self.facts, self.sampling = scheduler, facts, sampling
        self.prompt, self.trace = tuple(prompt), list[int]()
        self.slot = Slot(list(prompt))
        self.wasted = 0
        self._release_place = release
        self._buffer: deque[Pair] = deque()
        self._logprobs: list[float] = []  # of all sampled tokens, those of the trace first
        self._tops: list[float] = []  # for the same tokens, the mean of the highest log-probabilities
        self._watch = EndTagWatch(facts.end_tag)
        self._random = KeyedRandom(sampling.seed)
        self._detokenizer: Detokenizer | None = None
        self._ended = self._eos = self._closed = False
        scheduler.submit(Reserve(self.slot))

    @property
    def _length(self) -> int:
        return len(self.prompt) + len(self.trace)

    async def think(self, tokens: int, *, ban_end: bool = False, on_text: OnText | None = None) -> Stretch:
        """Think up to `tokens` more tokens."""
        start = len(self.trace)
        if on_text:
            for _, text in list(self._buffer)[:tokens]:
                on_text(text)
        if len(self._buffer) < tokens and not self._ended:
            if self._length + tokens > self.facts.context:
                raise DoesNotFit("The model's context is full.", "Lower the budget, or use a model with more context.")
            await run_job(self.scheduler, self._thinking(tokens, ban_end, on_text))
        taken = [self._buffer.popleft() for _ in range(min(tokens, len(self._buffer)))]
        self.trace += [token for token, _ in taken]
        ended = len(taken) < tokens
        logprobs, tops = (tuple(values[start : len(self.trace)]) for values in (self._logprobs, self._tops))
        return Stretch(tuple(self.trace[start:]), ended, ended and self._eos, logprobs, tops)

    def _thinking(self, tokens: int, ban_end: bool, on_text: OnText | None) -> ThinkJob:
        unreturned = [token for token, _ in (*self._buffer, *self._watch.held)]
        if self._detokenizer is None and (on_text or self.facts.end_tag.token is None):
            self._detokenizer = self.facts.tokenizer.detokenizer([*self.prompt, *self.trace])
        call = _caller(on_text) if on_text else None
        return self._job(
            unreturned,
            lambda token, logprob, top: self._take(token, logprob, top, tokens, call),
            self.facts.end_tag.ids[:1] if ban_end else (),
            logprobs=self.sampling.logprobs,
        )

    def _job(
        self, tail: Sequence[int], on_token: OnToken, banned: tuple[int, ...] = (), *, logprobs: bool = False
    ) -> ThinkJob:
        prompt = len(self.prompt)
        return ThinkJob(self.slot, self._length, tail, prompt, self.sampling, self._random, on_token, banned, logprobs)

    def _take(self, token: int, logprob: float, top: float, requested: int, call: OnText | None) -> bool:
        """Called on the decode thread with each token; True when there are enough. `call` gets the requested text."""
        tag = self.facts.end_tag.token
        if token in self.facts.end_ids and token != tag:
            self._ended = self._eos = True
            freed = self._watch.flush(eos=False)
        elif token == tag:
            self._ended, freed = True, []
        else:
            self.slot.ids.append(token)
            freed = self._free(token)
            if self.sampling.logprobs:
                self._logprobs.append(logprob)
                self._tops.append(top)
        if call:
            for _, text in freed[: requested - len(self._buffer)]:
                call(text)
        self._buffer += freed
        return self._ended or len(self._buffer) >= requested

    def _free(self, token: int) -> list[Pair]:
        """The tokens, with their text, that are certainly not part of the end tag."""
        text = self._detokenizer.feed(token) if self._detokenizer else ""
        if self.facts.end_tag.token is not None:
            return [(token, text)]
        freed = self._watch.feed(token, text)
        self._ended = self._watch.found
        return freed

    async def prefetch(self, tokens: int, *, ban_end: bool = False) -> None:
        """Does nothing: probes and thinking of all sessions already share one batch."""

    async def probe(
        self, suffix: Sequence[int], limit: int, done: Done, guess: Sequence[int] = (), *, rewind: int = 0, top: int = 0
    ) -> Answered:
        """Decode greedily after the suffix, as if the last `rewind` tokens did not exist."""
        query = self.facts.query(suffix, limit, done, top)
        answered: Answered = await run_job(self.scheduler, ProbeJob(self.slot, self._length - rewind, query, guess))
        return answered

    async def append(self, ids: Sequence[int]) -> None:
        """Continue the thinking with these tokens. Tokens that were sampled beyond it are wasted."""
        self.wasted += len(self._buffer)
        self._buffer.clear()
        self._watch = EndTagWatch(self.facts.end_tag)
        self._ended = self._eos = False
        if self.sampling.logprobs:  # these tokens were not sampled and have none
            self._logprobs = [*self._logprobs[: len(self.trace)], *(math.nan for _ in ids)]
            self._tops = [*self._tops[: len(self.trace)], *(math.nan for _ in ids)]
        # only the decode thread may change the slot: it may still run the last pass of a written answer that was left early
        self.scheduler.submit(ExclusiveJob(partial(self.slot.replace_end, self._length, tuple(ids))))
        self.trace += ids
        self._detokenizer = None

    async def write(self, limit: int) -> AsyncGenerator[Written, None]:
        """The written answer, sampled like the thinking at the positions that follow. It ends with the turn, a stop string,
        the limit or the context."""
        if self._eos:
            return
        limit = min(limit, self.facts.context - self._length - len(self.facts.end_tag.ids))
        if limit < 1:
            yield Written("", 0, "limit")
            return
        pieces: asyncio.Queue[Written | None] = asyncio.Queue()
        send = _caller(pieces.put_nowait)
        writer = _Writer(self.slot, self.facts, limit, self.sampling.stop, send)
        job = self._job(self.facts.end_tag.ids, writer.take)
        job.future.add_done_callback(lambda _: send(None))
        self.scheduler.submit(job)
        try:
            while (piece := await pieces.get()) is not None:
                yield piece
            job.future.result()
        finally:
            job.future.cancel()

    async def close(self) -> None:
        """Drop what is running and free the slot."""
        if self._closed:
            return
        self._closed = True
        self.wasted += len(self._buffer)
        self.scheduler.submit(Release(self.slot))
        self._release_place()


def _caller(function: Callable[[Any], object]) -> Callable[[Any], None]:
    """A function for other threads that calls this one on the running event loop; nothing happens if the loop is closed."""
    loop = asyncio.get_running_loop()

    def call(argument: Any) -> None:
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(function, argument)

    return call


class _Writer:
    """Turns the tokens of a written answer into pieces of text, on the decode thread."""

    def __init__(
        self, slot: Slot, facts: ModelFacts, limit: int, stops: tuple[str, ...], send: Callable[[Written], None]
    ) -> None:
        self.slot, self.facts, self.limit, self.send = slot, facts, limit, send
        self.stops = StopStrings(stops)
        self._detokenizer = facts.tokenizer.detokenizer()
        self._count = self._unsent = 0

    def take(self, token: int, _logprob: float, _top: float) -> bool:
        """Accept one token; True after the last one."""
        if token in self.facts.end_ids:
            return self._finish("", "eos")
        self.slot.ids.append(token)
        self._count += 1
        self._unsent += 1
        text = "" if token in self.facts.control else self.stops.feed(self._detokenizer.feed(token))
        if self.stops.found or self._count >= self.limit:
            return self._finish(text, "limit")
        if text:
            self._send(text)
        return False

    def _finish(self, text: str, stop: WrittenStop) -> bool:
        if not self.stops.found:
            text += self.stops.feed(self._detokenizer.flush())
        self._send(text + self.stops.flush(), "stop" if self.stops.found else stop)
        return True

    def _send(self, text: str, stop: WrittenStop | None = None) -> None:
        self.send(Written(text, self._unsent, stop))
        self._unsent = 0
