"""Engines and sessions that wrap another one and change only a part of it."""

from __future__ import annotations

from collections.abc import Sequence

from cgr.engines.base import Answered, Capabilities, Done, Engine, ModelInfo, OnText, Sampling, Session, Stretch


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

    async def write(self, limit: int) -> str:
        return await self.session.write(limit)

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

    async def encode(self, text: str) -> tuple[int, ...]:
        return await self.engine.encode(text)

    async def decode(self, ids: Sequence[int]) -> str:
        return await self.engine.decode(ids)

    async def prompt(self, question: str) -> tuple[int, ...]:
        return await self.engine.prompt(question)

    async def open(self, question: str | Sequence[int], sampling: Sampling, *, room: int, overlap: bool = False) -> Session:
        return await self.engine.open(question, sampling, room=room, overlap=overlap)

    async def close(self) -> None:
        await self.engine.close()
