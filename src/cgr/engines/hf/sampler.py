"""Sampling without state: one uniform number for each (seed, position), and a token chosen from it.

No random generator is kept, so neither probes nor the other sessions of a batch can change what a session samples. The
order is that of transformers: penalties, temperature, top-k, top-p, min-p. The token is then drawn by the inverse of the
cumulative distribution over token ids, in double precision. Each row of a batch is computed as if it were alone.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from cgr.engines.base import TOP_MEAN, Sampling

if TYPE_CHECKING:
    from cgr.engines.hf.jobs import ThinkJob

PENALTIES = {"presence_penalty", "frequency_penalty", "repetition_penalty"}
SMALLEST = sys.float_info.min
BLOCK = 256
ROUNDS = 10
MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
WEYL = (0x9E3779B9, 0xBB67AE85)
LOW_MASK, HALF = np.uint64(0xFFFFFFFF), np.uint64(32)
Uint64s = np.ndarray[Any, np.dtype[np.uint64]]
Words = tuple[Uint64s, Uint64s, Uint64s, Uint64s]


def philox(counter: Words, key: tuple[int, int]) -> Words:
    """Philox4x32-10 (Salmon et al. 2011) on many counters at once; 32-bit words, stored in 64 bits.

    numpy has only Philox4x64, which gives other numbers: recorded traces could not be repeated with it.
    """
    a, b, c, d = counter
    for number in range(ROUNDS):
        left, right = (np.uint64((word + number * weyl) & 0xFFFFFFFF) for word, weyl in zip(key, WEYL, strict=True))
        first, second = MULTIPLIERS[0] * a, MULTIPLIERS[1] * c
        a, b, c, d = (second >> HALF) ^ b ^ left, second & LOW_MASK, (first >> HALF) ^ d ^ right, first & LOW_MASK
    return a, b, c, d


def uniforms(seed: int, start: int, count: int) -> list[float]:
    """The uniform numbers of `count` positions from `start` on: 53 bits each, in [0, 1)."""
    positions = np.arange(start, start + count, dtype=np.uint64)
    zero = np.zeros_like(positions)
    seed &= (1 << 64) - 1
    high, low, _, _ = philox((positions & LOW_MASK, positions >> HALF, zero, zero), (seed & 0xFFFFFFFF, seed >> 32))
    bits = (high << np.uint64(21)) ^ (low >> np.uint64(11))
    values: list[float] = (bits.astype(np.float64) * 2.0**-53).tolist()
    return values


def uniform_at(seed: int, position: int) -> float:
    """The uniform number of one position."""
    block, offset = divmod(position, BLOCK)
    return _block(seed, block)[offset]


@lru_cache(maxsize=1024)  # each session is in a block of its own
def _block(seed: int, block: int) -> list[float]:
    return uniforms(seed, block * BLOCK, BLOCK)


@dataclass(frozen=True, slots=True, eq=False)
class Filters:
    """Temperature, top-k, top-p and min-p of each row of a batch, as tensors; None: no row uses it."""

    temperature: Tensor
    top_k: Tensor | None
    top_p: Tensor | None
    min_p: Tensor | None

    @classmethod
    def of(cls, rows: list[Sampling], device: torch.device) -> Filters:
        """The filters of these rows. A row that does not use a filter gets the value that leaves it unchanged.

        The likeliest token is always kept, also with a top-p of 0.
        """

        def column(values: list[float], dtype: torch.dtype = torch.float64) -> Tensor:
            return torch.tensor(values, dtype=dtype, device=device)

        top_p = [max(row.top_p, SMALLEST) if row.top_p < 1 else math.inf for row in rows]
        return cls(
            column([row.temperature or 1.0 for row in rows]),
            column([row.top_k for row in rows], torch.long) if any(row.top_k > 0 for row in rows) else None,
            column(top_p) if min(top_p) < 1 else None,
            column([min(row.min_p, 1.0) for row in rows]) if any(row.min_p > 0 for row in rows) else None,
        )

    def probabilities(self, logits: Tensor) -> Tensor:
        """The distribution of each row after all filters, in double precision; it need not sum to 1."""
        scores = logits.double() / self.temperature[:, None]
        if self.top_k is not None:
            scores = _top_k(scores, self.top_k)
        probabilities = torch.softmax(scores, -1)
        if self.top_p is not None:
            probabilities = _top_p(probabilities, self.top_p)
        if self.min_p is not None:
            lowest = self.min_p[:, None] * probabilities.amax(-1, keepdim=True)
            probabilities = probabilities.masked_fill(probabilities < lowest, 0.0)
        return probabilities


def _top_k(scores: Tensor, top_k: Tensor) -> Tensor:
    """Keep the k highest scores of each row, and all that equal the lowest of these; 0 keeps the whole row."""
    size = scores.shape[-1]
    last = torch.where(top_k > 0, top_k, size).clamp(max=size) - 1
    highest = scores.topk(int(last.max()) + 1, dim=-1).values
    return scores.masked_fill(scores < highest.gather(-1, last[:, None]), -torch.inf)


def _top_p(probabilities: Tensor, top_p: Tensor) -> Tensor:
    """Keep the fewest most likely tokens that together reach `top_p`; of equal ones, those with the smaller id."""
    ordered, ids = probabilities.sort(dim=-1, descending=True, stable=True)
    before = ordered.cumsum(-1) - ordered
    kept = ordered * (before < top_p[:, None])
    return torch.zeros_like(probabilities).scatter_(-1, ids, kept)


def draw(probabilities: Tensor, randoms: list[float]) -> Tensor:
    """A token for each row: the inverse of its cumulative distribution at its uniform number."""
    cumulative = probabilities.cumsum(-1)
    target = torch.tensor(randoms, dtype=torch.float64, device=probabilities.device)[:, None] * cumulative[:, -1:]
    return torch.searchsorted(cumulative, target, right=True)[:, 0].clamp_(max=probabilities.shape[-1] - 1)


def penalise(logits: Tensor, ids: list[int], sampling: Sampling) -> Tensor:
    """Logits of one position with the penalties on every token among `ids`: repetition, then frequency and presence."""
    if not ids:
        return logits
    tokens, counts = torch.tensor(ids, device=logits.device).unique(return_counts=True)
    scores, penalty = logits[tokens], sampling.repetition_penalty
    scores = torch.where(scores > 0, scores / penalty, scores * penalty)
    scores = scores - sampling.presence_penalty - sampling.frequency_penalty * counts
    return logits.index_copy(0, tokens, scores.to(logits.dtype))


@dataclass(frozen=True, slots=True, eq=False)
class SamplingBatch:
    """How the jobs of a batch are sampled: tensors that change only when the batch does. Temperature 0 is greedy."""

    jobs: list[ThinkJob]
    filters: Filters
    penalised: list[int]
    banned: tuple[Tensor, ...] | None
    greedy: Tensor | None
    all_greedy: bool
    logprobs: bool

    @classmethod
    def of(cls, jobs: list[ThinkJob], device: torch.device) -> SamplingBatch:
        """The batch of these jobs, with its tensors on this device."""
        banned = [(number, token) for number, job in enumerate(jobs) for token in job.banned]
        greedy = [job.sampling.temperature == 0 for job in jobs]
        return cls(
            jobs,
            Filters.of([job.sampling for job in jobs], device),
            [number for number, job in enumerate(jobs) if PENALTIES & job.sampling.filters()],
            tuple(torch.tensor(banned, device=device).T) if banned else None,
            torch.tensor(greedy, device=device) if any(greedy) else None,
            all(greedy),
            any(job.sampling.logprobs for job in jobs),
        )

    def sample(self, logits: Tensor) -> tuple[list[int], list[float], list[float]]:
        """For each job a token, its log-probability, and the mean of the highest log-probabilities.

        Log-probabilities are raw: before bans, penalties and filters. They are NaN if no job needs them.
        """
        chosen = self._choose(self._restricted(logits))
        tokens: list[int] = chosen.tolist()
        if not self.logprobs:
            return tokens, [math.nan] * len(tokens), [math.nan] * len(tokens)
        logprobs = logits.double().log_softmax(-1)
        tops = logprobs.topk(min(TOP_MEAN, logprobs.shape[-1]), dim=-1).values.mean(-1)
        return tokens, logprobs.gather(-1, chosen[:, None])[:, 0].tolist(), tops.tolist()

    def _restricted(self, logits: Tensor) -> Tensor:
        if self.penalised or self.banned is not None:
            logits = logits.clone()
        for number in self.penalised:
            job = self.jobs[number]  # penalties count all tokens after the prompt
            logits[number] = penalise(logits[number], job.slot.ids[job.prompt :], job.sampling)
        if self.banned is not None:
            logits[self.banned] = -torch.inf
        return logits

    def _choose(self, logits: Tensor) -> Tensor:
        if self.all_greedy:
            return logits.argmax(-1)
        drawn = draw(self.filters.probabilities(logits), [job.uniform() for job in self.jobs])
        return drawn if self.greedy is None else torch.where(self.greedy, logits.argmax(-1), drawn)
