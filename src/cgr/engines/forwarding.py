"""Engines and sessions that wrap another one and change only a part of it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from cgr.engines.base import (
    Answered,
    Capabilities,
    Done,
    Engine,
    ModelInfo,
    OnText,
    Prompt,
    Reader,
    Sampling,
    Session,
    Stretch,
    Written,
)
from cgr.records import Conversation


class ForwardingSession:
    """A session that passes everything on to `session`; a subclass overrides what it changes."""

    def __init__(self, session: Session) -> None:
        self.session = session

    @property
    def wasted(self) -> int:
        return self.session.wasted

    @wasted.setter
    def wasted(self, tokens: int) -> None:
        self.session.wasted = tokens

    @property
    def reader(self) -> Reader | None:
        return self.session.reader

    async def think(self, tokens: int, *, ban_end: bool = False, on_text: OnText | None = None) -> Stretch:
        return await self.session.think(tokens, ban_end=ban_end, on_text=on_text)

    async def prefetch(self, tokens: int, *, ban_end: bool = False) -> None:
        await self.session.prefetch(tokens, ban_end=ban_end)

    async def probe(
        self, suffix: Sequence[int], limit: int, done: Done, guess: Sequence[int] = (), *, rewind: int = 0, top: int = 0
    ) -> Answered:
        return await self.session.probe(suffix, limit, done, guess, rewind=rewind, top=top)

    async def append(self, ids: Sequence[int]) -> None:
        await self.session.append(ids)

    def write(self, limit: int) -> AsyncIterator[Written]:
        return self.session.write(limit)

    async def close(self) -> None:
        await self.session.close()


class ForwardingEngine:
    """An engine that passes everything on to `engine`; a subclass overrides what it changes."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    @property
    def info(self) -> ModelInfo:
        return self.engine.info

    @property
    def capabilities(self) -> Capabilities:
        return self.engine.capabilities

    @property
    def notes(self) -> tuple[str, ...]:
        return self.engine.notes

    @property
    def prober(self) -> Engine | None:
        return self.engine.prober

    async def connect(self) -> None:
        await self.engine.connect()

    async def encode(self, text: str) -> tuple[int, ...]:
        return await self.engine.encode(text)

    async def decode(self, ids: Sequence[int]) -> str:
        return await self.engine.decode(ids)

    async def prompt(self, conversation: Conversation) -> tuple[int, ...]:
        return await self.engine.prompt(conversation)

    async def open(
        self, prompt: Prompt, sampling: Sampling, *, room: int, overlap: bool = False, wait: float | None = None
    ) -> Session:
        return await self.engine.open(prompt, sampling, room=room, overlap=overlap, wait=wait)

    async def close(self) -> None:
        await self.engine.close()
