"""One question under one seed, in one slot of the scheduler."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from cgr.engines.base import Answered, Done, Ids, OnText, Reader, Sampling, Stretch, Written, WrittenStop
from cgr.engines.hf.jobs import ProbeJob, ProbeQuery, Slot, ThinkJob
from cgr.engines.hf.load import LoadedModel
from cgr.engines.text.chat import EndTagWatch, Pair
from cgr.engines.text.detokenize import Detokenizer, StopStrings
from cgr.errors import DoesNotFit


class TransformersSession:
    """A session of the transformers engine.

    Tokens that were sampled but not yet returned are in `_buffer`, or in the watch for the end tag: only an end tag of
    several tokens makes the model think further than requested.
    """

    reader: Reader | None = None

    def __init__(self, model: LoadedModel, prompt: Ids, sampling: Sampling, release: Callable[[], None]) -> None:
        self.model, self.scheduler, self.sampling = model, model.scheduler, sampling
        self.prompt, self.trace = tuple(prompt), list[int]()
        self.slot = Slot(list(prompt))
        self.wasted = 0
        self._release_place = release
        self._buffer: deque[Pair] = deque()
        self._logprobs: list[tuple[float, float]] = []  # of all sampled tokens, those of the trace first, with their tops
        self._watch = EndTagWatch(model.end_tag)
        self._detokenizer: Detokenizer | None = None
        self._ended = self._eos = self._closed = False
        self.scheduler.submit(self.scheduler.reserve, self.slot)

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
            if self._length + tokens > self.model.info.context:
                raise DoesNotFit("The model's context is full.", "Lower the budget, or use a model with more context.")
            await self.scheduler.complete(self._thinking(tokens, ban_end, on_text))
        taken = [self._buffer.popleft() for _ in range(min(tokens, len(self._buffer)))]
        self.trace += [token for token, _ in taken]
        ended = len(taken) < tokens
        numbers = zip(*self._logprobs[start : len(self.trace)], strict=True)
        return Stretch(tuple(self.trace[start:]), ended, ended and self._eos, *numbers)

    def _thinking(self, tokens: int, ban_end: bool, on_text: OnText | None) -> ThinkJob:
        unreturned = [token for token, _ in (*self._buffer, *self._watch.held)]
        if self._detokenizer is None and (on_text or self.model.end_tag.token is None):
            self._detokenizer = self.model.tokenizer.detokenizer([*self.prompt, *self.trace])
        take = partial(self._take, tokens, _caller(on_text) if on_text else None)
        banned = self.model.end_tag.ids[:1] if ban_end else ()
        return ThinkJob(self.slot, self._length, unreturned, len(self.prompt), self.sampling, take, banned)

    def _take(self, requested: int, call: OnText | None, token: int, logprob: float, top: float) -> bool:
        """Called on the decode thread with each token; True when there are enough. `call` gets the requested text."""
        tag = self.model.end_tag.token
        if token in self.model.end_ids and token != tag:
            self._ended = self._eos = True
            freed = self._watch.flush(eos=False)
        elif token == tag:
            self._ended, freed = True, []
        else:
            self.slot.ids.append(token)
            freed = self._free(token)
            if self.sampling.logprobs:
                self._logprobs.append((logprob, top))
        if call:
            for _, text in freed[: requested - len(self._buffer)]:
                call(text)
        self._buffer += freed
        return self._ended or len(self._buffer) >= requested

    def _free(self, token: int) -> list[Pair]:
        """The tokens, with their text, that are certainly not part of the end tag."""
        text = self._detokenizer.feed(token) if self._detokenizer else ""
        if self.model.end_tag.token is not None:
            return [(token, text)]
        freed = self._watch.feed(token, text)
        self._ended = self._watch.found
        return freed

    async def prefetch(self, tokens: int, *, ban_end: bool = False) -> None:
        """Does nothing: probes and thinking of all sessions already share one batch."""

    async def probe(
        self, suffix: Ids, limit: int, done: Done, guess: Ids = (), *, rewind: int = 0, top: int = 0
    ) -> Answered:
        """Decode greedily after the suffix, as if the last `rewind` tokens did not exist."""
        query = ProbeQuery(self.model, suffix, limit, done, top)
        answered: Answered = await self.scheduler.complete(ProbeJob(self.slot, self._length - rewind, query, guess))
        return answered

    async def append(self, ids: Ids) -> None:
        """Continue the thinking with these tokens. Tokens that were sampled beyond it are wasted."""
        self.wasted += len(self._buffer)
        self._buffer.clear()
        self._watch = EndTagWatch(self.model.end_tag)
        self._ended = self._eos = False
        if self.sampling.logprobs:  # these tokens were not sampled and have none
            self._logprobs = [*self._logprobs[: len(self.trace)], *((math.nan, math.nan) for _ in ids)]
        # only the decode thread may change the slot: it may still run the last pass of a written answer that was left early
        self.scheduler.submit(self.slot.replace_end, self._length, tuple(ids))
        self.trace += ids
        self._detokenizer = None

    async def write(self, limit: int) -> AsyncGenerator[Written, None]:
        """The written answer, sampled like the thinking at the positions that follow. It ends with the turn, a stop string,
        the limit or the context."""
        if self._eos:
            return
        limit = min(limit, self.model.info.context - self._length - len(self.model.end_tag.ids))
        if limit < 1:
            yield Written("", 0, "limit")
            return
        pieces: asyncio.Queue[Written | None] = asyncio.Queue()
        send = _caller(pieces.put_nowait)
        take = _Writer(self, limit, send).take
        sampling = replace(self.sampling, logprobs=False)
        job = ThinkJob(self.slot, self._length, self.model.end_tag.ids, len(self.prompt), sampling, take)
        job.future.add_done_callback(lambda _: send(None))
        self.scheduler.submit(self.scheduler.begin, job)
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
        self.scheduler.submit(self.scheduler.release, self.slot)
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

    def __init__(self, session: TransformersSession, limit: int, send: Callable[[Written], None]) -> None:
        self.slot, self.model, self.limit, self.send = session.slot, session.model, limit, send
        self.stops = StopStrings(session.sampling.stop)
        self._detokenizer = self.model.tokenizer.detokenizer()
        self._count = self._unsent = 0

    def take(self, token: int, _logprob: float, _top: float) -> bool:
        """Accept one token; True after the last one."""
        if token in self.model.end_ids:
            return self._finish("", "eos")
        self.slot.ids.append(token)
        self._count += 1
        self._unsent += 1
        text = "" if token in self.model.control else self.stops.feed(self._detokenizer.feed(token))
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
