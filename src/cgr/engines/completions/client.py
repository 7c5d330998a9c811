"""Speaking one server's dialect: a completion is wanted, pieces come, with ids and texts whatever the server leaves out."""

from __future__ import annotations

import codecs
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, Protocol

from cgr.engines.base import Done
from cgr.engines.completions.connection import Link
from cgr.engines.completions.dialect import BrokenOff, Dialect, Wanted, body, read
from cgr.engines.completions.wire import Piece
from cgr.engines.text.end_tag import EndTag
from cgr.records import Token


class Reader(Protocol):
    """Of a tokenizer, what a session needs where a server speaks in texts."""

    async def encode(self, text: str) -> tuple[int, ...]: ...

    async def decode(self, ids: Sequence[int]) -> str: ...


@dataclass(frozen=True, slots=True)
class Speech:
    """How to speak to this server about this model. `control`: tokens that end a probe; `eos`: those that are known to end
    the turn; `chunk`: tokens of a request in chunked mode, None for one stream."""

    dialect: Dialect
    model: str
    reader: Reader
    tag: EndTag
    control: frozenset[int]
    eos: frozenset[int] = frozenset()
    context: int = 0
    chunk: int | None = None

    async def prompt(self, ids: Sequence[int]) -> Sequence[int] | str:
        return ids if self.dialect.token_prompts else await self.reader.decode(ids)

    async def whole(self, link: Link, wanted: Wanted) -> Piece:
        data = await link.post(self.dialect.path, body(self.dialect, self.model, replace(wanted, stream=False)))
        piece = await self._complete(read(self.dialect, data))
        if piece.stop is None:
            raise BrokenOff("it gave half a completion")
        return piece

    @asynccontextmanager
    async def stream(self, link: Link, wanted: Wanted) -> AsyncIterator[AsyncIterator[Piece]]:
        """A completion as it comes, or at once where the server does not stream."""
        if not wanted.stream:
            yield _only(await self.whole(link, wanted))
            return
        async with link.events(self.dialect.path, body(self.dialect, self.model, wanted)) as events:
            yield self._pieces(events)

    async def _pieces(self, events: AsyncIterator[dict[str, Any]]) -> AsyncIterator[Piece]:
        decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        async for event in events:
            yield await self._complete(read(self.dialect, event, decoder))

    async def _complete(self, piece: Piece) -> Piece:
        """Ids where the server gives only text; texts where it gives only ids."""
        if self.dialect.token_ids == "none":
            return await self._encoded(piece)
        if any(not token.text and token.id not in self.control for token in piece.tokens) and len(piece.tokens) > 1:
            texts = [await self.reader.decode((token.id,)) for token in piece.tokens]
            named = (replace(token, text=text) for token, text in zip(piece.tokens, texts, strict=True))
            return replace(piece, tokens=tuple(named))
        return piece

    async def _encoded(self, piece: Piece) -> Piece:
        """A token's text is encoded on its own: not always the token that it was, which is why exactness is lost."""
        if not piece.tokens:
            return replace(piece, ids=await self.reader.encode(piece.text) if piece.text else ())
        firsts = [(await self.reader.encode(token.text) or (-1,))[0] for token in piece.tokens]
        tokens = tuple(replace(token, id=first) for token, first in zip(piece.tokens, firsts, strict=True))
        return replace(piece, ids=tuple(firsts), tokens=tokens)


async def _only(piece: Piece) -> AsyncIterator[Piece]:
    yield piece


class Asked:
    """What a probe has said so far. `named`: the token that ends the turn is among those that the server returns."""

    def __init__(self, control: frozenset[int], done: Done, named: bool) -> None:
        self.control, self.done, self.named = control, done, named
        self.tokens: list[Token] = []
        self.over = self.ended = False
        self.cached = self.prefilled = self.received = self.surplus = 0

    def take(self, piece: Piece) -> None:
        self.cached, self.prefilled = piece.cached or self.cached, piece.prefilled or self.prefilled
        self.received += len(piece.tokens)
        ends = piece.stop == "eos" and self.named
        for token in piece.tokens[:-1] if ends else piece.tokens:
            self._take(token)
        if piece.stop == "eos" and not self.over:
            self.ended = True
            if ends and not piece.tokens:
                del self.tokens[-1:]  # it was the end of the turn, and this server says so only now
        self.over = self.over or piece.stop is not None

    def _take(self, token: Token) -> None:
        if self.over:
            self.surplus += 1
        elif token.id in self.control:
            self.ended = self.over = True
        else:
            self.tokens.append(token)
            self.over = self.done(self.tokens)
