"""How many tokens the integers 0 to 999 take as answers: the paper's check of a tokenizer."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass

from cgr.engines.base import Engine
from cgr.records import Record

LARGEST = 999
MAX_IN_FLIGHT = 32


@dataclass(frozen=True, slots=True)
class Integers(Record):
    """`needed`: tokens of the longest integer with its closing brace; `longest`: that integer. `allowed`: the current
    maximum. `lengths`: pairs of a number of tokens and how many integers take it."""

    needed: int
    allowed: int
    longest: str
    lengths: tuple[tuple[int, int], ...]

    @property
    def fit(self) -> bool:
        """Whether every integer fits into the allowed tokens."""
        return self.needed <= self.allowed


async def measure(engine: Engine, allowed: int) -> Integers:
    """Encode every integer with its closing brace and count the tokens."""
    limit = asyncio.Semaphore(MAX_IN_FLIGHT)

    async def length(number: int) -> int:
        async with limit:
            return len(await engine.encode(f"{number}}}"))

    lengths = await asyncio.gather(*map(length, range(LARGEST + 1)))
    needed = max(lengths)
    return Integers(needed, allowed, f"{lengths.index(needed)}}}", tuple(sorted(Counter(lengths).items())))
