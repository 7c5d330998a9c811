"""Whether an answer of 0 to 999 fits into L tokens: the paper's check of a tokenizer."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass

from cgr.engines.base import Engine
from cgr.records import Record

LARGEST = 999
AT_ONCE = 32


@dataclass(frozen=True, slots=True)
class Integers(Record):
    """`needed`: the tokens that the longest of them takes, closing brace included; `longest` is one such. `lengths`: how
    many take how many tokens. `allowed` is the L in use."""

    needed: int
    allowed: int
    longest: str
    lengths: tuple[tuple[int, int], ...]

    @property
    def fit(self) -> bool:
        return self.needed <= self.allowed


async def measure(engine: Engine, allowed: int) -> Integers:
    """Every integer, followed by the brace that closes it, encoded on its own."""
    gate = asyncio.Semaphore(AT_ONCE)

    async def length(number: int) -> int:
        async with gate:
            return len(await engine.encode(f"{number}}}"))

    lengths = await asyncio.gather(*map(length, range(LARGEST + 1)))
    needed = max(lengths)
    return Integers(needed, allowed, f"{lengths.index(needed)}}}", tuple(sorted(Counter(lengths).items())))
