"""Chance without state: one uniform for each (seed, position), and a token drawn from it by inverse distribution.

No generator is kept anywhere, so neither probes nor the company that a session has in its batch can move its stream.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

BLOCK = 256
ROUNDS = 10
MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
WEYL = (0x9E3779B9, 0xBB67AE85)
LOW, HALF = np.uint64(0xFFFFFFFF), np.uint64(32)
Words = np.ndarray[Any, np.dtype[np.uint64]]


def philox(counter: tuple[Words, Words, Words, Words], key: tuple[int, int]) -> tuple[Words, Words, Words, Words]:
    """Philox4x32-10 (Salmon et al. 2011) on many counters at once; words of 32 bits, held in 64."""
    a, b, c, d = counter
    for number in range(ROUNDS):
        left, right = (np.uint64((word + number * weyl) & 0xFFFFFFFF) for word, weyl in zip(key, WEYL, strict=True))
        first, second = MULTIPLIERS[0] * a, MULTIPLIERS[1] * c
        a, b, c, d = (second >> HALF) ^ b ^ left, second & LOW, (first >> HALF) ^ d ^ right, first & LOW
    return a, b, c, d


def uniforms(seed: int, start: int, count: int) -> list[float]:
    """The uniforms of positions start, start + 1, ...: 53 bits each, in [0, 1)."""
    positions = np.arange(start, start + count, dtype=np.uint64)
    zero = np.zeros_like(positions)
    seed &= (1 << 64) - 1
    high, low, _, _ = philox((positions & LOW, positions >> HALF, zero, zero), (seed & 0xFFFFFFFF, seed >> 32))
    bits = (high << np.uint64(21)) ^ (low >> np.uint64(11))
    found: list[float] = (bits.astype(np.float64) * 2.0**-53).tolist()
    return found


@dataclass(slots=True)
class Chance:
    """One seed's uniforms by position, computed a block at a time."""

    seed: int
    _block: int = -1
    _held: list[float] = field(default_factory=list)

    def at(self, position: int) -> float:
        block, place = divmod(position, BLOCK)
        if block != self._block:
            self._block, self._held = block, uniforms(self.seed, block * BLOCK, BLOCK)
        return self._held[place]


def draw(logits: torch.Tensor, temperature: torch.Tensor, top_p: torch.Tensor | None, chance: list[float]) -> torch.Tensor:
    """A token for each row: temperature, then top-p, then the inverse of the distribution by token id, all in doubles."""
    probabilities = torch.softmax(logits.double() / temperature[:, None], -1)
    if top_p is not None:
        probabilities = _nucleus(probabilities, top_p)
    summed = probabilities.cumsum(-1)
    target = torch.tensor(chance, dtype=torch.float64, device=logits.device)[:, None] * summed[:, -1:]
    return torch.searchsorted(summed, target, right=True)[:, 0].clamp_(max=logits.shape[-1] - 1)


def _nucleus(probabilities: torch.Tensor, top_p: torch.Tensor) -> torch.Tensor:
    """The fewest most likely tokens that reach this share; of equals, those with the smaller id."""
    ordered, ids = probabilities.sort(dim=-1, descending=True, stable=True)
    before = ordered.cumsum(-1) - ordered
    kept = ordered * (before < top_p[:, None])
    return torch.zeros_like(probabilities).scatter_(-1, ids, kept)
