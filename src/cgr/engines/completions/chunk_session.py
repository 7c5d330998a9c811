"""Sessions on a completions server, over HTTP, in token ids throughout.

Thinking comes in chunks on a fixed grid, each with a seed keyed by its start, so that a trace depends on the seed alone
and not on where it was probed. A probe sends prompt, trace and suffix to the slot that holds the trace: the server's cache
makes it pay for the tail only. Where probes overlap with thinking they have a second slot, which follows the first.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from cgr.engines.base import TOP_MEAN, Answered, Done, OnText, Sampling, Stretch, keyed_seed
from cgr.engines.completions.wire import Piece, Wire, probe_body, thinking_body
from cgr.engines.text.end_tag import EndTag, Pair, Watch
from cgr.errors import DoesNotFit, EngineError
from cgr.records import Token

CHUNK = 32


class CompletionsSession:
    """`slots`: where to think, and, if there is a second, where to probe; `release` gives them back on close."""

    def __init__(
        self,
        wire: Wire,
        prompt: Sequence[int],
        sampling: Sampling,
        tag: EndTag,
        control: frozenset[int],
        slots: Sequence[int],
        release: Callable[[], None],
    ) -> None:
        self.wire, self.prompt, self.sampling, self.tag, self.control = wire, list(prompt), sampling, tag, control
        self.slots, self._release = tuple(slots), release
        self.wasted = 0
        self.trace: list[int] = []
        self._ahead: deque[Pair] = deque()
        self._logprobs: list[float] = []  # of all tokens read so far, those of the trace first
        self._tops: list[float] = []  # the same, of the mean of the highest log-probabilities there
        self._watch = Watch(tag)
        self._over = self._eos = self._closed = self._watched = False

    async def think(self, tokens: int, *, ban_end: bool = False, on_text: OnText | None = None) -> Stretch:
        taken: list[int] = []
        start = len(self.trace)
        self._watched = self._watched or on_text is not None

        def take() -> None:
            while self._ahead and len(taken) < tokens:
                token, text = self._ahead.popleft()
                taken.append(token)
                self.trace.append(token)
                if on_text and text:
                    on_text(text)

        take()
        while len(taken) < tokens and not self._over:
            await self._fetch(ban_end, take if on_text else None)
            take()
        ended = len(taken) < tokens
        logprobs, tops = (tuple(values[start : len(self.trace)]) for values in (self._logprobs, self._tops))
        return Stretch(tuple(taken), ended, ended and self._eos, logprobs, tops)

    async def prefetch(self, tokens: int, *, ban_end: bool = False) -> None:
        while len(self._ahead) < tokens and not self._over:
            await self._fetch(ban_end)

    async def _fetch(self, ban_end: bool, on_piece: Callable[[], None] | None = None) -> None:
        """Read on to the end of the chunk that the position lies in."""
        pending = [token for token, _ in (*self._ahead, *self._watch.held)]
        start = len(self.trace) + len(pending)
        body = thinking_body(
            [*self.prompt, *self.trace, *pending],
            CHUNK - start % CHUNK,
            self.sampling,
            keyed_seed(self.sampling.seed, start),
            self.slots[0],
            self.tag.ids[:1] if ban_end else (),
        )
        await self._receive(body, on_piece)
        if not self._over and len(self.trace) + len(self._ahead) + len(self._watch.held) == start:
            raise EngineError("The server gave no tokens.", "cgr needs a server that returns token ids.")

    async def _receive(self, body: dict[str, Any], on_piece: Callable[[], None] | None) -> None:
        """As a stream if somebody watches, or has watched: what is read ahead will be shown too."""
        if not self._watched and self.tag.token is not None:
            self._take_all(await self.wire.complete(body))
            return
        piece: Piece | None = None
        async with self.wire.stream(body) as pieces:
            async for piece in pieces:
                self._take(piece)
                if on_piece:
                    on_piece()
                if self._over:
                    return
        if piece is None or not piece.stop:
            raise _broken_off()

    def _take_all(self, piece: Piece) -> None:
        """A whole completion: thinking up to the end tag; what the model wrote after it is not thinking."""
        self._note_logprobs(piece)
        for number, token in enumerate(piece.ids):
            self._ahead += self._watch.feed(token, "")
            if self._watch.found:
                self._over = True
                self.wasted += len(piece.ids) - number - 1
                return
        self._finish(piece)

    def _take(self, piece: Piece) -> None:
        self._note_logprobs(piece)
        for number, token in enumerate(piece.ids):
            text = piece.text if number == len(piece.ids) - 1 else ""
            self._ahead += self._watch.feed(token, text)
            if self._watch.found:
                self._over = True
                return
        if piece.stop:
            self._finish(piece)

    def _note_logprobs(self, piece: Piece) -> None:
        if not self.sampling.logprobs:
            return
        if len(piece.tokens) != len(piece.ids):
            raise EngineError("The server gave no log-probabilities of the thinking.", "Leave --logprobs out.")
        self._logprobs += [token.logprob for token in piece.tokens]
        self._tops += [mean_top(token) for token in piece.tokens]

    def _finish(self, piece: Piece) -> None:
        if not piece.stop:
            raise _broken_off()
        if piece.truncated:
            raise DoesNotFit("The model's context is full.", "Lower the budget, or use a model with more context.")
        eos = piece.stop == "eos"
        if eos or self.tag.token is not None:
            self._ahead += self._watch.flush(eos)
        self._over = self._eos = eos

    async def probe(
        self, suffix: Sequence[int], limit: int, done: Done, guess: Sequence[int] = (), *, rewind: int = 0, top: int = 0
    ) -> Answered:
        began = time.perf_counter()
        tokens: list[Token] = []
        ended, over, cached, prefilled = False, False, 0, 0
        control = frozenset() if top else self.control  # whose alternatives are wanted is a token like any other
        thought = self.trace[: len(self.trace) - rewind]
        body = probe_body([*self.prompt, *thought, *suffix], limit, self.slots[-1], top)
        async with self.wire.stream(body) as pieces:
            async for piece in pieces:
                cached, prefilled = piece.cached or cached, piece.prefilled or prefilled
                fresh = list(piece.tokens)
                ended = any(token.id in control for token in fresh)
                tokens += [token for token in fresh if token.id not in control]
                over = ended or piece.stop is not None or (bool(fresh) and done(tokens))
                if over:
                    break
        if not over:
            raise _broken_off()
        if not tokens and not ended:
            raise EngineError("The server gave no log-probabilities.", "cgr needs a server that returns them.")
        return Answered(tuple(tokens), ended, prefilled, cached, time.perf_counter() - began)

    async def append(self, ids: Sequence[int]) -> None:
        """Written in place of an end: what was read ahead no longer follows."""
        self.wasted += len(self._ahead)
        self._ahead.clear()
        self._watch = Watch(self.tag)
        self._over = self._eos = False
        if self.sampling.logprobs:  # nobody sampled these, so they have none
            self._logprobs = [*self._logprobs[: len(self.trace)], *(math.nan for _ in ids)]
            self._tops = [*self._tops[: len(self.trace)], *(math.nan for _ in ids)]
        self.trace += ids

    async def write(self, limit: int) -> str:
        """Sampled as the thinking is, from a seed of its own; stopped by the end of turn, the limit or the context."""
        if self._eos:
            return ""
        start = [*self.trace, *self.tag.ids]
        seed = keyed_seed(self.sampling.seed, len(start))
        sampling = replace(self.sampling, logprobs=False)
        body = thinking_body([*self.prompt, *start], limit, sampling, seed, self.slots[0])
        return (await self.wire.complete(body)).text

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self.wasted += len(self._ahead)
        self._release()


def mean_top(token: Token) -> float:
    """The mean of the highest log-probabilities where this token was chosen."""
    highest = sorted((logprob for _, logprob in token.top), reverse=True)[:TOP_MEAN]
    return math.fsum(highest) / len(highest) if highest else math.nan


def _broken_off() -> EngineError:
    return EngineError("The server broke off in the middle of a completion.", "Start again.")
