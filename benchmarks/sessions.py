"""Sessions to measure: each has its own prompt, so that no cache holds a part of it."""

from __future__ import annotations

import itertools
import time
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar, cast

from cgr.drive.driver import Driver
from cgr.engines.base import Engine, Sampling, Session
from cgr.probing import ProbeSpec
from cgr.reason import Append, Think, Thought

T = TypeVar("T")
SPEC = ProbeSpec(max_answer_tokens=4)
WAIT = "\nWait"
QUESTION = (
    "Problem {number}. A shop packs {number} boxes a day, and {more} more each week. How many boxes has it packed after a "
    "year, and what are the last three digits of that number? Think for as long as you can, and check every step."
)


@dataclass(slots=True)
class Bench:
    """An engine that is measured. Each question that it gives out is new."""

    engine: Engine
    _numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(17))

    async def session(self, room: int, *, question: str | None = None, overlap: bool = False, seed: int = 1) -> Session:
        """A new session with room for this many tokens, on a new question unless one is given."""
        sampling = Sampling(seed=seed, limit=room)
        return await self.engine.open(question or self.question(), sampling, room=room + 64, overlap=overlap)

    def question(self) -> str:
        """A question that was not used before."""
        number = next(self._numbers)
        return QUESTION.format(number=number, more=number * 7)

    def driver(self, session: Session, *, overlap: bool = False) -> Driver:
        """A driver for this session."""
        return Driver(self.engine, session, SPEC, overlap=overlap)

    async def suffix(self) -> tuple[int, ...]:
        """The ids of the probe's prefix."""
        return await self.engine.encode(SPEC.prefix)


async def timed(work: Awaitable[T]) -> tuple[float, T]:
    """The seconds that the work took, and its result."""
    began = time.perf_counter()
    result = await work
    return time.perf_counter() - began, result


async def think_on(driver: Driver, tokens: int) -> None:
    """Think exactly this many tokens: the end tag is banned if possible; otherwise "Wait" is appended after an end."""
    ban = driver.engine.capabilities.ban
    while tokens > 0:
        thought = cast(Thought, await driver.serve(Think(tokens, ban_end=ban)))
        tokens -= thought.tokens
        if tokens > 0:
            tokens -= cast(int, await driver.serve(Append(WAIT, tokens)))


async def read(session: Session, ids: Sequence[int], suffix: Sequence[int], limit: int = SPEC.max_answer_tokens) -> None:
    """Append these tokens to the session and probe it."""
    await session.append(ids)
    await session.probe(suffix, limit, SPEC.done())
