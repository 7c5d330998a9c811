"""One question under one seed, on a row of the batch."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from cgr.engines.base import Answered, Done, OnText, Sampling, Stretch
from cgr.engines.hf.requests import TOP, Opened, Probing, Released, Request, Row, Thinking
from cgr.engines.hf.sampler import Chance
from cgr.engines.hf.scheduler import Batch
from cgr.engines.text.detokenize import Pieces, Words
from cgr.engines.text.end_tag import EndTag, Pair, Watch
from cgr.errors import DoesNotFit

T = TypeVar("T")
Hear = Callable[[Sequence[Pair]], None]


@dataclass(frozen=True, slots=True)
class Habits:
    """What a session needs to know of its model: its words, how it ends its thinking and its turn, and its context."""

    words: Words
    tag: EndTag
    ends: frozenset[int]
    control: frozenset[int]
    context: int


async def ask(batch: Batch, request: Request, future: Future[T]) -> T:
    batch.submit(request)
    try:
        return await asyncio.wrap_future(future)
    except asyncio.CancelledError:
        future.cancel()  # at once: by itself it would hear of it only when the event loop turns
        raise


async def take_row(batch: Batch) -> Row:
    """A row, when one is free. Who no longer wants it when it comes gives it back."""
    opened = Opened()
    try:
        return await ask(batch, opened, opened.future)
    except asyncio.CancelledError:
        opened.future.add_done_callback(lambda row: None if row.cancelled() else batch.submit(Released(row.result())))
        raise


class TransformersSession:
    """What the model thought but nobody has asked for yet is `_ahead`, or held by the watch: only an end tag of several
    tokens makes it read past what is wanted."""

    def __init__(self, batch: Batch, row: Row, prompt: Sequence[int], sampling: Sampling, habits: Habits) -> None:
        self.batch, self.row, self.sampling, self.habits = batch, row, sampling, habits
        self.prompt, self.trace = tuple(prompt), list[int]()
        self.wasted = 0
        row.ids += prompt
        self._ahead: deque[Pair] = deque()
        self._logprobs: list[float] = []  # of all tokens read so far, those of the trace first
        self._tops: list[float] = []  # the same, of the mean of the highest log-probabilities there
        self._watch = Watch(habits.tag)
        self._chance = Chance(sampling.seed)
        self._pieces: Pieces | None = None
        self._over = self._eos = self._closed = False

    @property
    def _length(self) -> int:
        return len(self.prompt) + len(self.trace)

    async def think(self, tokens: int, *, ban_end: bool = False, on_text: OnText | None = None) -> Stretch:
        start = len(self.trace)
        if on_text:
            for _, text in list(self._ahead)[:tokens]:
                on_text(text)
        if len(self._ahead) < tokens and not self._over:
            if self._length + tokens > self.habits.context:
                raise DoesNotFit("The model's context is full.", "Lower the budget, or use a model with more context.")
            job = self._thinking(tokens, ban_end, on_text)
            await ask(self.batch, job, job.future)
        taken = [self._ahead.popleft() for _ in range(min(tokens, len(self._ahead)))]
        self.trace += [token for token, _ in taken]
        ended = len(taken) < tokens
        logprobs, tops = (tuple(values[start : len(self.trace)]) for values in (self._logprobs, self._tops))
        return Stretch(tuple(self.trace[start:]), ended, ended and self._eos, logprobs, tops)

    def _thinking(self, tokens: int, ban_end: bool, on_text: OnText | None) -> Thinking:
        held = [token for token, _ in (*self._ahead, *self._watch.held)]
        hear = self._hearing(on_text, tokens)
        if self._pieces is None and (on_text or self.habits.tag.token is None):
            self._pieces = self.habits.words.pieces([*self.prompt, *self.trace])
        return Thinking(
            self.row,
            self._length,
            held,
            len(self.prompt),
            self.sampling.temperature,
            self.sampling.top_p,
            self._chance,
            lambda token, logprob, top: self._take(token, logprob, top, tokens, hear),
            self.habits.tag.ids[:1] if ban_end else (),
            self.sampling.logprobs,
        )

    def _hearing(self, on_text: OnText | None, tokens: int) -> Hear | None:
        """Tell the loop that asked of each piece of text. It may be gone by then: then nobody wants to know."""
        if on_text is None:
            return None
        loop = asyncio.get_running_loop()
        left = tokens - len(self._ahead)

        def hear(freed: Sequence[Pair]) -> None:
            nonlocal left
            for _, text in freed[:left]:
                with suppress(RuntimeError):
                    loop.call_soon_threadsafe(on_text, text)
            left -= len(freed)

        return hear

    def _take(self, token: int, logprob: float, top: float, wanted: int, hear: Hear | None) -> bool:
        """Called by the decode loop with each token; True when that is enough."""
        tag = self.habits.tag.token
        if token in self.habits.ends and token != tag:
            self._over = self._eos = True
            freed = self._watch.flush(eos=False)
        elif token == tag:
            self._over, freed = True, []
        else:
            self.row.ids.append(token)
            freed = self._freed(token)
            if self.sampling.logprobs:
                self._logprobs.append(logprob)
                self._tops.append(top)
        self._ahead += freed
        if hear:
            hear(freed)
        return self._over or len(self._ahead) >= wanted

    def _freed(self, token: int) -> list[Pair]:
        """The tokens that are now known to be thinking."""
        text = self._pieces.feed(token) if self._pieces else ""
        if self.habits.tag.token is not None:
            return [(token, text)]
        freed = self._watch.feed(token, text)
        self._over = self._watch.found
        return freed

    async def prefetch(self, tokens: int, *, ban_end: bool = False) -> None:
        """Nothing is gained: the batch is one, and other sessions fill it meanwhile."""

    async def probe(
        self, suffix: Sequence[int], limit: int, done: Done, guess: Sequence[int] = (), *, rewind: int = 0, top: int = 0
    ) -> Answered:
        control = frozenset[int]() if top else self.habits.control  # where alternatives are wanted, any token counts
        job = Probing(
            self.row, self._length - rewind, suffix, limit, done, guess, control, self.habits.words, max(top, TOP)
        )
        return await ask(self.batch, job, job.future)

    async def append(self, ids: Sequence[int]) -> None:
        """Written in place of an end: what was read ahead no longer follows."""
        self.wasted += len(self._ahead)
        self._ahead.clear()
        self._watch = Watch(self.habits.tag)
        self._over = self._eos = False
        if self.sampling.logprobs:  # nobody sampled these, so they have none
            self._logprobs = [*self._logprobs[: len(self.trace)], *(math.nan for _ in ids)]
            self._tops = [*self._tops[: len(self.trace)], *(math.nan for _ in ids)]
        del self.row.ids[self._length :]
        self.row.read = min(self.row.read, self._length)
        self.row.ids += ids
        self.trace += ids
        self._pieces = None

    async def write(self, limit: int) -> str:
        """Sampled as the thinking is, at the positions that follow; ended by the end of turn, the limit or the context."""
        limit = min(limit, self.habits.context - self._length - len(self.habits.tag.ids))
        if self._eos or limit < 1:
            return ""
        written: list[int] = []

        def take(token: int, logprob: float, top: float) -> bool:
            if token in self.habits.ends:
                return True
            written.append(token)
            self.row.ids.append(token)
            return len(written) >= limit

        sampling, tag = self.sampling, self.habits.tag.ids
        job = Thinking(
            self.row,
            self._length,
            tag,
            len(self.prompt),
            sampling.temperature,
            sampling.top_p,
            self._chance,
            take,
        )
        await ask(self.batch, job, job.future)
        return self.habits.words.decode([token for token in written if token not in self.habits.control])

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self.wasted += len(self._ahead)
        self.batch.submit(Released(self.row))
