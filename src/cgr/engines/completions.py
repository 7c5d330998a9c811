"""Sessions on a completions server, over HTTP, in token ids throughout.

Thinking comes in chunks on a fixed grid, each with a seed keyed by its start, so that a trace depends on the seed alone
and not on where it was probed. A probe sends prompt, trace and suffix to the slot that holds the trace: the server's cache
makes it pay for the tail only. Where probes overlap with thinking they have a second slot, which follows the first.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence

from cgr.engines.base import Answered, Done, OnText, Sampling, Stretch, keyed_seed
from cgr.engines.endings import EndTag, Pair, Watch
from cgr.engines.wire import Piece, Wire, probe_body, thinking_body
from cgr.errors import DoesNotFit, EngineError
from cgr.records import Token

CHUNK = 32


class CompletionsSession:
    """`slots`: where to think, and, if there is a second, where to probe; they go back to `free` on close."""

    def __init__(
        self,
        wire: Wire,
        prompt: Sequence[int],
        sampling: Sampling,
        tag: EndTag,
        control: frozenset[int],
        slots: Sequence[int],
        free: asyncio.Queue[int],
    ) -> None:
        self.wire, self.prompt, self.sampling, self.tag, self.control = wire, list(prompt), sampling, tag, control
        self.slots, self._free = tuple(slots), free
        self.wasted = 0
        self.trace: list[int] = []
        self._ahead: deque[Pair] = deque()
        self._watch = Watch(tag)
        self._over = self._eos = self._closed = False

    async def think(self, tokens: int, *, ban_end: bool = False, on_text: OnText | None = None) -> Stretch:
        taken: list[int] = []

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
        return Stretch(tuple(taken), ended, ended and self._eos)

    async def prefetch(self, tokens: int, *, ban_end: bool = False) -> None:
        while len(self._ahead) < tokens and not self._over:
            await self._fetch(ban_end)

    async def _fetch(self, ban_end: bool, on_piece: Callable[[], None] | None = None) -> None:
        """Read on to the end of the chunk that the position lies in; as a stream if somebody watches."""
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
        if on_piece is None and self.tag.token is not None:
            self._take_all(await self.wire.complete(body))
            return
        async with self.wire.stream(body) as pieces:
            async for piece in pieces:
                self._take(piece)
                if on_piece:
                    on_piece()
                if self._over:
                    return
        if not piece.stop:
            raise EngineError("The server broke off in the middle of a completion.", "Start again.")

    def _take_all(self, piece: Piece) -> None:
        """A whole completion: thinking up to the end tag; what the model wrote after it is not thinking."""
        for number, token in enumerate(piece.ids):
            self._ahead += self._watch.feed(token, "")
            if self._watch.found:
                self._over = True
                self.wasted += len(piece.ids) - number - 1
                return
        self._finish(piece)

    def _take(self, piece: Piece) -> None:
        for number, token in enumerate(piece.ids):
            text = piece.text if number == len(piece.ids) - 1 else ""
            self._ahead += self._watch.feed(token, text)
            if self._watch.found:
                self._over = True
                return
        if piece.stop:
            self._finish(piece)

    def _finish(self, piece: Piece) -> None:
        if piece.truncated:
            raise DoesNotFit("The model's context is full.", "Lower the budget, or use a model with more context.")
        eos = piece.stop == "eos"
        if eos or self.tag.token is not None:
            self._ahead += self._watch.flush(eos)
        self._over = self._eos = eos

    async def probe(self, suffix: Sequence[int], limit: int, done: Done, guess: Sequence[int] = ()) -> Answered:
        began = time.perf_counter()
        tokens: list[Token] = []
        ended, cached, prefilled = False, 0, 0
        body = probe_body([*self.prompt, *self.trace, *suffix], limit, self.slots[-1])
        async with self.wire.stream(body) as pieces:
            async for piece in pieces:
                cached, prefilled = piece.cached or cached, piece.prefilled or prefilled
                fresh = list(piece.tokens)
                ended = any(token.id in self.control for token in fresh)
                tokens += [token for token in fresh if token.id not in self.control]
                if ended or piece.stop or (fresh and done(tokens)):
                    break
        if not tokens and not ended:
            raise EngineError("The server gave no log-probabilities.", "cgr needs a server that returns them.")
        return Answered(tuple(tokens), ended, prefilled, cached, time.perf_counter() - began)

    async def append(self, ids: Sequence[int]) -> None:
        """Written in place of an end: what was read ahead no longer follows."""
        self.wasted += len(self._ahead)
        self._ahead.clear()
        self._watch = Watch(self.tag)
        self._over = self._eos = False
        self.trace += ids

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self.wasted += len(self._ahead)
        for slot in self.slots:
            self._free.put_nowait(slot)
