"""All cuts of a trace probed at once: the trace is computed once, and the suffixes of all cuts are stored before it.

Each suffix has the positions that it would have after its own cut, and a mask that shows it the trace up to that cut and
itself, but not the other suffixes. Each further token of the answers takes one pass for all cuts.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from cgr.engines.base import Answered, Ids
from cgr.engines.hf.attention import Block, repeat_mask
from cgr.engines.hf.jobs import AnswerDecoder, ProbeQuery, distributions_of
from cgr.engines.hf.kv_cache import KVCache
from cgr.engines.hf.scheduler import CHUNK

UNMASKED_TOKENS = 8192  # tokens in the first pass, which needs no mask
MAX_MASK_SIZE = 1 << 24
MAX_QUERIES = 1024
MIN_BLOCK_QUERIES, MAX_BLOCKS = 16, 8  # how the queries of a pass are divided


class PackedProbe:
    """A probe of one trace at many positions, ascending, in a cache of its own.

    `ids`: the prompt and the trace; positions count from the start of the prompt. The cache contains first the suffixes and
    answers of one group of positions, then the trace.
    """

    def __init__(self, model: Any, query: ProbeQuery, ids: Ids, positions: Ids) -> None:
        self.cache = KVCache(model, limits=(1, 0))
        self.query, self.ids, self.positions = query, ids, positions
        self.end = max(positions)
        per_cut = len(query.suffix) + query.limit - 1
        size = max(1, min(MAX_QUERIES, MAX_MASK_SIZE // (self.end + MAX_QUERIES)) // per_cut)
        self.groups = [positions[first : first + size] for first in range(0, len(positions), size)]
        self.trace_start = per_cut * len(self.groups[0])

    def run(self) -> list[Answered]:
        """The answer at each cut. The cost of the trace is divided among the cuts."""
        began = time.perf_counter()
        self.cache.reserve(1, self.trace_start + self.end)
        self._prefill_trace()
        answers = [answer for group in self.groups for answer in self._probe(group)]
        self.cache.clear()
        seconds = (time.perf_counter() - began) / len(answers)
        suffix = len(self.query.suffix)
        return [
            answer.answered(prefilled=end - start + suffix, cached=start, seconds=seconds)
            for answer, start, end in zip(answers, [0, *self.positions], self.positions, strict=False)
        ]

    def _prefill_trace(self) -> None:
        start = 0
        while start < self.end:
            end = min(start + (CHUNK if start else UNMASKED_TOKENS), self.end)
            positions = torch.arange(start, end, device=self.cache.device)[None]
            mask = self.cache.causal_mask(positions, end) if start else None
            ids = torch.tensor([list(self.ids[start:end])], device=self.cache.device)
            self.cache.locate([0], positions + self.trace_start, self.trace_start + end, self.trace_start)
            self.cache.forward(ids, positions, mask, keep=1)
            start = end

    def _probe(self, positions: Ids) -> list[AnswerDecoder]:
        answers = [AnswerDecoder(self.query) for _ in positions]
        suffixes = _Suffixes(self.cache, self.trace_start, positions)
        open_cuts = list(range(len(positions)))
        logits = suffixes.extend(open_cuts, [self.query.suffix] * len(positions))
        while True:
            found = distributions_of(logits.to(self.cache.float64_device), self.query.top)
            going = [row for row, cut in enumerate(open_cuts) if not answers[cut].take(found[row])]
            open_cuts = [open_cuts[row] for row in going]
            if not open_cuts:
                return answers
            logits = suffixes.extend(open_cuts, [[found[row].token] for row in going])


class _Suffixes:
    """The part of the cache before the trace, filled from its end backward: the cut and the position of each token."""

    def __init__(self, cache: KVCache, size: int, lengths: Ids) -> None:
        self.cache, self.size = cache, size
        self.lengths = lengths  # tokens of prompt and trace before each cut
        self._added = [0] * len(lengths)
        self._first = size
        self._cuts = torch.full((size,), -1, device=cache.device)
        self._positions = torch.zeros(size, dtype=torch.long, device=cache.device)

    def extend(self, cuts: Ids, tokens: Sequence[Ids]) -> Tensor:
        """One pass over the next tokens of these cuts, the same number for each; logits as [cut, token]."""
        width, device = len(tokens[0]), self.cache.device
        new = slice(self._first - len(cuts) * width, self._first)
        self._first = new.start
        starts = torch.tensor([self.lengths[cut] + self._added[cut] for cut in cuts], device=device)
        self._cuts[new] = torch.tensor(cuts, device=device).repeat_interleave(width)
        self._positions[new] = (starts[:, None] + torch.arange(width, device=device)).flatten()
        for cut in cuts:
            self._added[cut] += width
        ranges = self._block_ranges(cuts, width)
        end = self._first + ranges[-1][2]
        ids = torch.tensor([[token for one in tokens for token in one]], device=device)
        keep = torch.arange(width - 1, len(cuts) * width, width, device=device)
        mask = self.cache.additive_mask(self._hidden(new, end))
        blocks = [
            Block(first, last, seen, repeat_mask(mask[:, :, first:last, :seen], self.cache.queries_per_key))
            for first, last, seen in ranges
        ]
        self.cache.locate([0], torch.arange(new.start, new.stop, device=device)[None], end, self._first)
        return self.cache.forward(ids, self._positions[None, new], mask, keep, blocks)[0]

    def _block_ranges(self, cuts: Ids, width: int) -> list[tuple[int, int, int]]:
        """First query, last query and end of the keys for each block of neighbouring cuts.

        A block attends to the trace only as far as its last cut, which saves half of the attention.
        """
        size = max(-(-MIN_BLOCK_QUERIES // width), -(-len(cuts) // MAX_BLOCKS))
        stored = self.size - self._first
        return [
            (first * width, min(first + size, len(cuts)) * width, stored + self.lengths[cuts[first : first + size][-1]])
            for first in range(0, len(cuts), size)
        ]

    def _hidden(self, new: slice, end: int) -> Tensor:
        """What each new token must not attend to, as [1, 1, query, key]: other suffixes, later tokens, later trace."""
        cuts, positions = self._cuts[new, None], self._positions[new, None]
        lengths = torch.tensor(self.lengths, device=cuts.device)[cuts]
        suffixes = (self._cuts[self._first :] != cuts) | (self._positions[self._first :] > positions)
        trace = torch.arange(end - self.size, device=cuts.device) >= lengths
        return torch.cat([suffixes, trace], -1)[None, None]
