"""Reads a model's thinking ahead of its caller, into a buffer.

In one of two ways. As one long stream, with probes beside it: this is how servers of other people are used. Or in chunks
on a fixed grid, each with a seed keyed by its start, so that a trace depends on its seed alone and not on where it was
probed: this is how llama.cpp in this process is used. Where a reply breaks off, the next request continues from the
tokens that were received. Cancelling closes the connection, which the server notices.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from cgr.engines.base import TOP_MEAN, OnText, Sampling, Stretch, WrittenStop, keyed_seed
from cgr.engines.completions.client import Attempts, CompletionClient, Replica
from cgr.engines.completions.dialect import CompletionRequest, Piece, by_token, mean_top
from cgr.engines.completions.http import BadReply, Fault, Server
from cgr.engines.completions.limits import Withheld
from cgr.engines.text.chat import EndTag, EndTagWatch, Pair
from cgr.errors import DoesNotFit, EngineError, MissingCapability

MAX_AHEAD = 512  # tokens that a stream is read ahead of the caller
WHOLE = 8  # tokens that are requested without a stream where it left some out: more than one character has
OnPiece = Callable[[], None] | None


@dataclass(frozen=True, slots=True)
class ThinkingFormat:
    """How a model's thinking ends and is requested. `control`: tokens that end a probe; `eos`: tokens known to end the
    turn; `chunk`: tokens of a request in chunked mode, None for one stream."""

    tag: EndTag
    control: frozenset[int]
    eos: frozenset[int]
    context: int
    chunk: int | None = None


class ThinkingReader:
    """The thinking of one session. `trace`: the tokens that were returned; `ahead`: those received and not yet returned.
    `limit`: where a stream ends. `wasted`: tokens that were received and dropped. `slot`: of a llama.cpp server."""

    def __init__(
        self,
        client: CompletionClient,
        replica: Replica,
        form: ThinkingFormat,
        prompt: Sequence[int],
        sampling: Sampling,
        limit: int,
        slot: int | None,
    ) -> None:
        self.client, self.replica, self.form = client, replica, form
        self.prompt, self.sampling, self.slot = list(prompt), sampling, slot
        self.trace: list[int] = []
        self.ahead: deque[Pair] = deque()
        self.wasted = 0
        self.eos = False  # the model ended its turn
        self._over = self._banned = self._watched = self._full = False
        self._limit, self._target = limit, 0  # how far a stream is read, how far chunks are
        self._wake_at = 1  # tokens in the buffer that wake the caller: waking it for each one costs more than reading it
        self._deliver: OnPiece = None  # passes tokens on to the caller's function while the caller sleeps
        self._logprobs: list[float] = []  # of all tokens received, those of the trace first
        self._tops: list[float] = []
        self._watch = EndTagWatch(form.tag)
        self._task: asyncio.Task[None] | None = None
        self._received, self._taken = asyncio.Event(), asyncio.Event()

    async def take(self, tokens: int, *, ban_end: bool = False, on_text: OnText | None = None) -> Stretch:
        """Up to `tokens` tokens of thinking, fewer if it ends."""
        await self._set_ban(ban_end)
        self._watched = self._watched or on_text is not None
        start = len(self.trace)
        end = start + tokens

        def pass_on() -> None:
            while self.ahead and len(self.trace) < end:
                token, text = self.ahead.popleft()
                self.trace.append(token)
                if on_text and text:
                    on_text(text)
            if self._full:
                self._full = False
                self._taken.set()
            if len(self.trace) >= end:
                self._received.set()

        pass_on()
        try:
            while len(self.trace) < end and not self._over:
                await self._more(end, pass_on if on_text else None)
                pass_on()
        finally:
            self._deliver = None
        ended = len(self.trace) < end
        logprobs, tops = (tuple(values[start : len(self.trace)]) for values in (self._logprobs, self._tops))
        return Stretch(tuple(self.trace[start:]), ended, ended and self.eos, logprobs, tops)

    def read_ahead(self, tokens: int, *, ban_end: bool = False) -> None:
        """Start to read this far ahead. A stream is read ahead anyway; chunks are requested by a task."""
        if self.form.chunk and not self._over and ban_end == self._banned:
            self._target = len(self.trace) + tokens
            self._start()

    async def append(self, ids: Sequence[int]) -> None:
        """Continue with these tokens in place of the end: what was read ahead no longer follows."""
        await self.stop()
        self._drop_ahead()
        if self.sampling.logprobs:  # these tokens were not sampled, so they have no log-probability
            self._logprobs += [math.nan for _ in ids]
            self._tops += [math.nan for _ in ids]
        self.trace += ids

    async def stop(self) -> None:
        """Stop reading ahead and close the connection."""
        task, self._task = self._task, None
        if task:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    @property
    def unused(self) -> int:
        """Tokens that were received and not returned."""
        return len(self.ahead) + len(self._watch.held)

    async def _set_ban(self, ban_end: bool) -> None:
        """Ban the end tag, or allow it again: what was read ahead under the other setting is dropped."""
        if ban_end and not self.client.dialect.logit_bias:
            raise MissingCapability("This server cannot ban a token.", "Force by replacing the end tag instead.")
        if ban_end != self._banned:
            await self.stop()
            self._drop_ahead()
            self._banned = ban_end

    def _drop_ahead(self) -> None:
        self.wasted += self.unused
        self.ahead.clear()
        self._watch = EndTagWatch(self.form.tag)
        self._over = self.eos = False
        del self._logprobs[len(self.trace) :], self._tops[len(self.trace) :]

    # Requests

    async def _more(self, target: int, on_piece: OnPiece) -> None:
        """Wait until something was received or the thinking is over. A chunk is requested here if no task does it."""
        self._target, self._limit = max(self._target, target), max(self._limit, target)
        if self.form.chunk and not self._is_running():
            await self._read_to(self._end_of_chunk(), on_piece)
            return
        self._deliver = on_piece
        self._wake_at = 1 if on_piece else min(target - len(self.trace), MAX_AHEAD)
        task = self._start()
        if not self.ahead and not task.done():
            self._received.clear()
            await self._received.wait()
        if task.done() and not self.ahead:
            task.result()  # raises what made it end

    def _is_running(self) -> bool:
        """Whether a task reads ahead. One that failed counts until its error was raised."""
        return self._task is not None and not (self._task.done() and not self._task.exception())

    def _start(self) -> asyncio.Task[None]:
        if self._task is None or not self._is_running():
            self._task = asyncio.create_task(self._run())
        return self._task

    async def _run(self) -> None:
        """Read as far as the caller wants, which may grow meanwhile."""
        try:
            while not self._over and self._position < (goal := self._target if self.form.chunk else self._limit):
                await self._read_to(goal)
        finally:
            self._received.set()

    async def _read_to(self, goal: int, on_piece: OnPiece = None) -> None:
        """Read up to a position. Where a reply breaks off, continue from the tokens that were received."""
        attempts, whole = Attempts(self.replica), False
        while not self._over and self._position < goal:
            server = self.replica.server
            left = (self._end_of_chunk() if self.form.chunk else goal) - self._position
            try:
                await self._request(server, min(left, WHOLE) if whole else left, attempts, on_piece, whole=whole)
                whole = False
            except Withheld:
                whole = True
            except Fault as fault:
                await attempts.failed(server, fault)

    @property
    def _position(self) -> int:
        return len(self.trace) + self.unused

    def _end_of_chunk(self) -> int:
        chunk = self.form.chunk or 1
        return self._position + chunk - self._position % chunk

    async def _request(self, server: Server, count: int, attempts: Attempts, on_piece: OnPiece, *, whole: bool) -> None:
        """`whole`: without a stream, because a stream leaves out tokens here."""
        before = self._position
        stop: WrittenStop | None = None
        request = await self._completion_request(count, whole)
        async with server.turn, self.client.stream(server, request) as reads:
            async for pieces in reads:
                if whole:
                    pieces = [one for piece in pieces for one in await by_token(piece, self.client.decode)]  # noqa: PLW2901
                stop = self._receive(pieces, attempts, on_piece) or stop
                if self._over:
                    return
                while not self.form.chunk and len(self.ahead) >= MAX_AHEAD:
                    self._full = True
                    self._taken.clear()
                    await self._taken.wait()
        if stop is None:
            raise BadReply("it broke off in the middle of a completion")
        self._finish(stop == "eos", self._position - before, count)

    async def _completion_request(self, count: int, whole: bool) -> CompletionRequest:
        """Chunks are streamed only if somebody reads along, or if the end tag has to be found in the text."""
        pending = [token for token, _ in (*self.ahead, *self._watch.held)]
        streamed = not self.form.chunk or self._watched or self.form.tag.token is None
        return CompletionRequest(
            await self.client.prompt_for([*self.prompt, *self.trace, *pending]),
            count,
            self.sampling,
            keyed_seed(self.sampling.seed, self._position),
            self.form.tag.ids[:1] if self._banned else (),
            TOP_MEAN if self.sampling.logprobs else None,
            streamed and not whole and self.client.dialect.stream,
            self.slot,
            purpose=self.replica.purpose("think"),
        )

    def _receive(self, pieces: Iterable[Piece], attempts: Attempts, on_piece: OnPiece) -> WrittenStop | None:
        """Put what one read brought into the buffer; why the completion ended, if it did. Where one piece is faulty, those
        before it are kept."""
        received, stop = False, None
        try:
            for piece in pieces:
                if piece.ids:
                    received = True
                    self._put(piece)
                stop = piece.stop or stop
                if self._over:
                    break
                if piece.truncated:
                    raise _context_full()
        finally:
            if received:
                attempts.progress()
                if deliver := on_piece or self._deliver:
                    deliver()
                if len(self.ahead) >= self._wake_at:  # at the end of a stream, `_run` wakes it
                    self._received.set()
        return stop

    def _put(self, piece: Piece) -> None:
        if self.sampling.logprobs:
            self._note_logprobs(piece)
        last = len(piece.ids) - 1
        for number, token in enumerate(piece.ids):
            self._feed(token, piece.text if number == last else "")
            if self._over:
                self.wasted += last - number
                break

    def _feed(self, token: int, text: str) -> None:
        if token in self.form.eos:
            self.ahead += self._watch.flush(eos=False)
            self._over = self.eos = True
            return
        self.ahead += self._watch.feed(token, text)
        self._over = self._watch.found

    def _note_logprobs(self, piece: Piece) -> None:
        if len(piece.tokens) != len(piece.ids):
            raise EngineError("The server gave no log-probabilities of the thinking.", "Leave --logprobs out.")
        self._logprobs += [token.logprob for token in piece.tokens]
        self._tops += [mean_top(token) for token in piece.tokens]

    def _finish(self, eos: bool, received: int, requested: int) -> None:
        """The completion is whole. If it ended early without an end of turn, the context is full."""
        if not eos and not received:
            raise EngineError("The server gave no tokens.", "cgr needs a server that returns token ids.")
        if not eos and received < requested and self.client.dialect.exact:
            raise _context_full()
        if eos or not self.form.chunk:
            self.ahead += self._watch.flush(eos and self.client.dialect.token_ids != "none")
        else:
            self.ahead += self._watch.settle()
        self._over = self.eos = eos
        self._received.set()


def _context_full() -> DoesNotFit:
    return DoesNotFit("The model's context is full.", "Lower the budget, or use a model with more context.")
