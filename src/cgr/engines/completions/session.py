"""Sessions on somebody else's server: thinking is one long stream, read ahead of whoever wants it; probes go beside it.

A background task reads the stream into a buffer, and waits when the buffer is full. A stop hangs up at once, which the
server sees. Where a stream breaks, another is begun from the tokens that are held: the prompt, the trace, and what was
read ahead. In chunked mode each request asks for one stretch of a fixed grid instead, and nothing is read unasked.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace

from cgr.engines.base import TOP_MEAN, Answered, Done, OnText, Sampling, Stretch, keyed_seed
from cgr.engines.completions.chunk_session import mean_top
from cgr.engines.completions.client import Asked, Speech
from cgr.engines.completions.connection import Fault, Link
from cgr.engines.completions.dialect import BrokenOff, Wanted, probe_wanted
from cgr.engines.completions.pool import Attempts, Home
from cgr.engines.completions.wire import Piece
from cgr.engines.text.end_tag import Pair, Watch
from cgr.errors import DoesNotFit, EngineError, MissingCapability

AHEAD = 512  # tokens that are read before anybody wants them
FEW = 4  # tokens that a probe may have left to decode and still be read to its end, for its figures


class RemoteSession:
    """`release` is called on close. `room`: tokens that fit after the prompt."""

    def __init__(
        self,
        speech: Speech,
        home: Home,
        prompt: Sequence[int],
        sampling: Sampling,
        room: int,
        release: Callable[[], None],
    ) -> None:
        self.speech, self.home, self.prompt, self.sampling = speech, home, list(prompt), sampling
        self.wasted = 0
        self.trace: list[int] = []
        self._limit = min(sampling.limit or room, room)
        self._release = release
        self._ahead: deque[Pair] = deque()
        self._logprobs: list[float] = []  # of all tokens read so far, those of the trace first
        self._tops: list[float] = []  # the same, of the mean of the highest log-probabilities there
        self._watch = Watch(speech.tag)
        self._over = self._eos = self._closed = self._banned = False
        self._reading: asyncio.Task[None] | None = None
        self._changed = asyncio.Condition()

    # thinking

    async def think(self, tokens: int, *, ban_end: bool = False, on_text: OnText | None = None) -> Stretch:
        await self._ban(ban_end)
        taken: list[int] = []
        start = len(self.trace)
        while True:
            await self._take(taken, tokens, on_text)
            if len(taken) == tokens or self._over:
                break
            await self._more(tokens - len(taken))
        ended = len(taken) < tokens
        logprobs, tops = (tuple(values[start : len(self.trace)]) for values in (self._logprobs, self._tops))
        return Stretch(tuple(taken), ended, ended and self._eos, logprobs, tops)

    async def _take(self, taken: list[int], tokens: int, on_text: OnText | None) -> None:
        async with self._changed:
            while self._ahead and len(taken) < tokens:
                token, text = self._ahead.popleft()
                taken.append(token)
                self.trace.append(token)
                if on_text and text:
                    on_text(text)
            self._changed.notify_all()

    async def _ban(self, ban_end: bool) -> None:
        """Banned or not, the end is banned from here on: what was read otherwise no longer follows."""
        if ban_end and not self.speech.dialect.logit_bias:
            raise MissingCapability("This server cannot ban a token.", "Force by replacing the end tag instead.")
        if ban_end != self._banned:
            await self._hang_up()
            self._forget()
            self._banned = ban_end

    async def _more(self, tokens: int) -> None:
        """Until something has come, or the thinking is over."""
        if self.speech.chunk:
            await self._chunk(self.speech.chunk)
            return
        if self._reading is None or (self._reading.done() and not self._reading.exception()):
            self._limit = max(self._limit, len(self.trace) + tokens)
            self._reading = asyncio.create_task(self._read_on())
        async with self._changed:
            await self._changed.wait_for(lambda: self._ahead or self._over or self._ended_reading())
        if self._reading.done() and not self._ahead:
            self._reading.result()

    def _ended_reading(self) -> bool:
        return self._reading is None or self._reading.done()

    async def prefetch(self, tokens: int, *, ban_end: bool = False) -> None:
        """A stream reads ahead by itself; chunks have to be asked for."""
        while self.speech.chunk and len(self._ahead) < tokens and not self._over and ban_end == self._banned:
            await self._chunk(self.speech.chunk)

    @property
    def _position(self) -> int:
        return len(self.trace) + len(self._ahead) + len(self._watch.held)

    async def _chunk(self, size: int) -> None:
        start = self._position
        await self._fill(lambda: start + size - start % size)

    async def _read_on(self) -> None:
        try:
            await self._fill(lambda: self._limit)
        finally:
            async with self._changed:
                self._changed.notify_all()

    async def _fill(self, goal: Callable[[], int]) -> None:
        """Read up to a position. Where a reply breaks off, go on from the tokens that are held."""
        attempts = Attempts(self.home)
        while not self._over and self._position < goal():
            link, before = self.home.link, self._position
            try:
                await self._one_request(link, goal() - before, attempts)
            except (Fault, BrokenOff) as fault:
                await attempts.failed(link, fault)

    async def _one_request(self, link: Link, count: int, attempts: Attempts) -> None:
        before = self._position
        stop: str | None = None
        async with self.speech.stream(link, await self._wanted(count)) as pieces:
            async for piece in pieces:
                if piece.ids:
                    await self._give(piece)
                    attempts.progress()
                stop = piece.stop or stop
                if self._over:
                    return
                if piece.truncated:
                    raise _full()
        if stop is None:
            raise BrokenOff("it broke off in the middle of a completion")
        await self._finish(stop, self._position - before, count)

    async def _wanted(self, count: int) -> Wanted:
        pending = [token for token, _ in (*self._ahead, *self._watch.held)]
        return Wanted(
            await self.speech.prompt([*self.prompt, *self.trace, *pending]),
            count,
            self.sampling,
            keyed_seed(self.sampling.seed, self._position),
            self.speech.tag.ids[:1] if self._banned else (),
            TOP_MEAN if self.sampling.logprobs else None,
            self.speech.dialect.stream,
        )

    async def _give(self, piece: Piece) -> None:
        """Into the buffer; wait while it is full."""
        self._note_logprobs(piece)
        async with self._changed:
            for number, token in enumerate(piece.ids):
                self._feed(token, piece.text if number == len(piece.ids) - 1 else "")
                if self._over:
                    self.wasted += len(piece.ids) - number - 1
                    break
            self._changed.notify_all()
            if not self.speech.chunk:
                await self._changed.wait_for(lambda: len(self._ahead) < AHEAD)

    def _feed(self, token: int, text: str) -> None:
        if token in self.speech.eos:
            self._ahead += self._watch.flush(eos=False)
            self._over = self._eos = True
            return
        self._ahead += self._watch.feed(token, text)
        self._over = self._watch.found

    def _note_logprobs(self, piece: Piece) -> None:
        if not self.sampling.logprobs:
            return
        if len(piece.tokens) != len(piece.ids):
            raise EngineError("The server gave no log-probabilities of the thinking.", "Leave --logprobs out.")
        self._logprobs += [token.logprob for token in piece.tokens]
        self._tops += [mean_top(token) for token in piece.tokens]

    async def _finish(self, stop: str, came: int, asked: int) -> None:
        """The completion is whole. Ended before its time without an end of turn, it ran out of context."""
        eos = stop == "eos"
        if not eos and not came:
            raise EngineError("The server gave no tokens.", "cgr needs a server that returns what it decoded.")
        if not eos and came < asked and self.speech.dialect.exact:
            raise _full()
        async with self._changed:
            if eos or self.speech.tag.token is not None or not self.speech.chunk:
                self._ahead += self._watch.flush(eos and self.speech.dialect.token_ids != "none")
            self._over = self._eos = eos
            self._changed.notify_all()

    # probing

    async def probe(
        self, suffix: Sequence[int], limit: int, done: Done, guess: Sequence[int] = (), *, rewind: int = 0, top: int = 0
    ) -> Answered:
        began = time.perf_counter()
        thought = self.trace[: len(self.trace) - rewind]
        prompt = await self.speech.prompt([*self.prompt, *thought, *suffix])
        wanted = probe_wanted(self.speech.dialect, prompt, limit, top)
        control = (
            frozenset[int]() if top else self.speech.control
        )  # whose alternatives are wanted is a token like any other
        answered = await Attempts(self.home).until_done(lambda link: self._ask(link, wanted, done, control))
        return replace(answered, seconds=time.perf_counter() - began)

    async def _ask(self, link: Link, wanted: Wanted, done: Done, control: frozenset[int]) -> Answered:
        """One attempt, whole or not at all: half a probe is never an answer."""
        asked = Asked(control, done, self.speech.dialect.token_ids != "none")
        async with self.speech.stream(link, wanted) as pieces:
            async for piece in pieces:
                asked.take(piece)
                if asked.over and not self._reads_on(wanted.count - asked.received):
                    break
        if not asked.over:
            raise BrokenOff("it broke off in the middle of a probe")
        self.wasted += asked.surplus
        if not asked.tokens and not asked.ended:
            raise EngineError("The server gave no log-probabilities.", "cgr needs a server that returns them.")
        return Answered(tuple(asked.tokens), asked.ended, asked.prefilled, asked.cached)

    def _reads_on(self, left: int) -> bool:
        """To the end, where a server says only there what it had cached, and the end is near."""
        return self.speech.dialect.api == "openai" and left <= FEW

    # the rest

    async def append(self, ids: Sequence[int]) -> None:
        """Written in place of an end: what was read ahead no longer follows."""
        await self._hang_up()
        self._forget()
        self._over = self._eos = False
        if self.sampling.logprobs:  # nobody sampled these, so they have none
            self._logprobs += [math.nan for _ in ids]
            self._tops += [math.nan for _ in ids]
        self.trace += ids

    def _forget(self) -> None:
        self.wasted += len(self._ahead) + len(self._watch.held)
        self._ahead.clear()
        self._watch = Watch(self.speech.tag)
        self._over = self._eos = False
        del self._logprobs[len(self.trace) :], self._tops[len(self.trace) :]

    async def write(self, limit: int) -> str:
        """Sampled as the thinking is, from a seed of its own; stopped by the end of turn, the limit or the context."""
        if self._eos:
            return ""
        start = [*self.trace, *self.speech.tag.ids]
        left = min(limit, self.speech.context - len(self.prompt) - len(start))
        if left < 1:
            return ""
        seed = keyed_seed(self.sampling.seed, len(start))
        sampling = replace(self.sampling, logprobs=False)
        wanted = Wanted(await self.speech.prompt([*self.prompt, *start]), left, sampling, seed)
        return (await Attempts(self.home).until_done(lambda link: self.speech.whole(link, wanted))).text

    async def _hang_up(self) -> None:
        """End the stream now: the server sees it and stops."""
        reading, self._reading = self._reading, None
        if reading:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        try:
            await self._hang_up()
        finally:
            self.wasted += len(self._ahead) + len(self._watch.held)
            self.home.leave()
            self._release()


def _full() -> DoesNotFit:
    return DoesNotFit("The model's context is full.", "Lower the budget, or use a model with more context.")
