"""One question on a completions server, in token ids throughout: think, probe, append, write, close."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import replace

from cgr.engines.base import Answered, Done, OnText, Reader, Sampling, Stretch, Written, WrittenStop, keyed_seed
from cgr.engines.completions.client import Attempts, CompletionClient, Replica
from cgr.engines.completions.dialect import CompletionRequest, Piece, probe_request
from cgr.engines.completions.http import BadReply, Fault, Server
from cgr.engines.completions.limits import Withheld
from cgr.engines.completions.thinking import ThinkingFormat, ThinkingReader
from cgr.errors import EngineError
from cgr.records import Token

FEW_LEFT = 4  # a probe that is decided with this few tokens to go is read to its end, for its usage figures
USAGE_EVERY = 16  # in one session of this many, the first probe is read to its end in any case


class CompletionsSession:
    """`room`: tokens that fit after the prompt. `slots`: of a llama.cpp server, the one to think on and, if there is a
    second, the one to probe on. `release` is called once, on close."""

    reader: Reader | None = None

    def __init__(
        self,
        client: CompletionClient,
        replica: Replica,
        form: ThinkingFormat,
        prompt: Sequence[int],
        sampling: Sampling,
        room: int,
        release: Callable[[], None],
        slots: Sequence[int] = (),
    ) -> None:
        self.client, self.replica, self.form = client, replica, form
        self.prompt, self.sampling = list(prompt), sampling
        self._think_slot: int | None = slots[0] if slots else None
        self._probe_slot: int | None = slots[-1] if slots else None
        limit = min(sampling.limit or room, room)
        self.thinking = ThinkingReader(client, replica, form, prompt, sampling, limit, self._think_slot)
        self._release, self._closed, self._surplus = release, False, 0
        self._wants_usage = client.sessions % USAGE_EVERY == 0
        client.sessions += 1

    @property
    def wasted(self) -> int:
        """Tokens that were decoded and not used."""
        return self._surplus + self.thinking.wasted

    @wasted.setter
    def wasted(self, tokens: int) -> None:
        self._surplus = tokens - self.thinking.wasted

    @property
    def trace(self) -> list[int]:
        """The thinking so far."""
        return self.thinking.trace

    async def think(self, tokens: int, *, ban_end: bool = False, on_text: OnText | None = None) -> Stretch:
        return await self.thinking.take(tokens, ban_end=ban_end, on_text=on_text)

    async def prefetch(self, tokens: int, *, ban_end: bool = False) -> None:
        self.thinking.read_ahead(tokens, ban_end=ban_end)

    async def append(self, ids: Sequence[int]) -> None:
        await self.thinking.append(ids)

    async def probe(
        self, suffix: Sequence[int], limit: int, done: Done, guess: Sequence[int] = (), *, rewind: int = 0, top: int = 0
    ) -> Answered:
        """Decode greedily after the suffix. The server's cache holds all but the last tokens of the prompt."""
        began = time.perf_counter()
        thought = self.trace[: len(self.trace) - rewind]
        prompt = await self.client.prompt_for([*self.prompt, *thought, *suffix])
        request = probe_request(self.client.dialect, prompt, limit, top, self._probe_slot, self.replica.purpose("probe"))
        control = frozenset[int]() if top else self.form.control  # with alternatives, a control token is one like any other
        attempts = Attempts(self.replica)
        answered = await attempts.until_done(lambda server: self._probe_once(server, request, done, control))
        return replace(answered, seconds=time.perf_counter() - began)

    async def _probe_once(
        self, server: Server, request: CompletionRequest, done: Done, control: frozenset[int]
    ) -> Answered:
        """One attempt, complete or not at all: an incomplete probe is never an answer."""
        reading = _ProbeReading(control, done, self.client.dialect.token_ids != "none")
        try:
            async with server.turn, self.client.stream(server, request) as reads:
                async for pieces in reads:
                    if self._is_read(reading, pieces, request.count):
                        break
        except Withheld:
            return await self._probe_once(server, replace(request, stream=False), done, control)
        if not reading.over:
            raise BadReply("it broke off in the middle of a probe")
        self._wants_usage = False
        self._surplus += reading.surplus
        if not reading.tokens and not reading.ended:
            raise EngineError("The server gave no log-probabilities.", "cgr needs a server that returns them.")
        return Answered(tuple(reading.tokens), reading.ended, reading.prefilled, reading.cached)

    def _is_read(self, reading: _ProbeReading, pieces: Iterable[Piece], count: int) -> bool:
        """Take these pieces of a probe; whether nothing more of it is needed."""
        for piece in pieces:
            reading.take(piece)
            if reading.over and not self._reads_on(count - reading.received):
                return True
        return False

    def _reads_on(self, left: int) -> bool:
        """Whether to read a decided probe to its end: OpenAI's API reports only there what was cached. A server that sends
        more than it was asked for has no end."""
        return self.client.dialect.api == "openai" and left >= 0 and (left <= FEW_LEFT or self._wants_usage)

    async def write(self, limit: int) -> AsyncIterator[Written]:
        """The answer after the thinking, sampled as the thinking is, from a seed of its own."""
        before = [*self.prompt, *self.trace, *self.form.tag.ids]
        answer = _AnswerReading(0 if self.thinking.eos else min(limit, self.form.context - len(before)))
        attempts, top = Attempts(self.replica), self.sampling.answer_top
        while answer.left > 0 and answer.stop is None:
            server = self.replica.server
            start = [*before, *(await self.client.encode(answer.text) if answer.unnamed else answer.ids)]
            try:
                async with self.client.stream(server, await self._writing_request(start, answer.left)) as reads:
                    async for pieces in reads:
                        for piece in pieces:
                            if piece.ids:  # events without tokens are no progress
                                attempts.progress()
                            yield answer.take(piece, logprobs=top is not None)
                            if answer.over:
                                break
                        if answer.over:
                            break
                if answer.stop is None:
                    raise BadReply("it broke off in the middle of the answer")
            except Fault as fault:
                await attempts.failed(server, fault)

    async def _writing_request(self, start: Sequence[int], count: int) -> CompletionRequest:
        sampling = replace(self.sampling, logprobs=False)
        seed = keyed_seed(sampling.seed, len(start) - len(self.prompt))
        prompt, stream = await self.client.prompt_for(start), self.client.dialect.stream
        return CompletionRequest(
            prompt,
            count,
            sampling,
            seed,
            top=sampling.answer_top,
            stream=stream,
            slot=self._think_slot,
            stop=sampling.stop,
            purpose=self.replica.purpose("answer"),
            only_text=True,
        )

    async def close(self) -> None:
        """Cancel what is running, and give the place back."""
        if self._closed:
            return
        self._closed = True
        try:
            await self.thinking.stop()
        finally:
            self._surplus += self.thinking.unused
            self.replica.leave()
            self._release()


class _AnswerReading:
    """What was written of an answer so far. `left`: how many tokens more it may have. `unnamed`: the ids of some of its
    tokens are not known. `over`: the server sent more than it was asked for."""

    def __init__(self, left: int) -> None:
        self.left, self.text, self.ids = left, "", list[int]()
        self.unnamed = self.over = False
        self.stop: WrittenStop | None = None

    def take(self, piece: Piece, *, logprobs: bool) -> Written:
        """The next piece of the answer."""
        count = len(piece.ids) + piece.unnamed
        if count > self.left:
            self.over, self.stop = True, "limit"
            return Written("", 0, self.stop)
        self.ids += piece.ids
        self.text += piece.text
        self.left, self.stop = self.left - count, piece.stop or self.stop
        self.unnamed = self.unnamed or piece.unnamed > 0
        return Written(piece.text, count, piece.stop, piece.tokens if logprobs else ())


class _ProbeReading:
    """What a probe has decoded so far. `eos_returned`: the token that ends the turn is among those that are returned."""

    def __init__(self, control: frozenset[int], done: Done, eos_returned: bool) -> None:
        self.control, self.done, self.eos_returned = control, done, eos_returned
        self.tokens: list[Token] = []
        self.over = self.ended = False
        self.cached = self.prefilled = self.received = self.surplus = 0

    def take(self, piece: Piece) -> None:
        self.cached, self.prefilled = piece.cached or self.cached, piece.prefilled or self.prefilled
        self.received += len(piece.tokens)
        ends = piece.stop == "eos" and self.eos_returned
        for token in piece.tokens[:-1] if ends else piece.tokens:
            self._take_token(token)
        if piece.stop == "eos" and not self.over:
            self.ended = True
            if ends and not piece.tokens:
                del self.tokens[-1:]  # that one ended the turn, and the server says so only now
        self.over = self.over or piece.stop is not None

    def _take_token(self, token: Token) -> None:
        if self.over:
            self.surplus += 1
        elif token.id in self.control:
            self.ended = self.over = True
        else:
            self.tokens.append(token)
            self.over = self.done(self.tokens)
