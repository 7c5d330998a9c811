"""All cuts of a trace asked in one forward pass: the trace is read once, and the suffixes of all cuts are kept before it.

Each suffix has the positions that it would have after its own cut, and a mask that shows it the trace up to there and
itself, never its siblings. Each further token of the answers takes one pass for all.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from cgr.engines.base import Answered, Done
from cgr.engines.hf.attention import Block, spread
from cgr.engines.hf.kv_cache import Rows
from cgr.engines.hf.requests import TOP, Answer, Distributions
from cgr.engines.hf.scheduler import CHUNK
from cgr.engines.text.detokenize import Words

PLAIN = 8192  # tokens that are read in one pass, without a mask
SEEN = 1 << 24  # numbers in a mask at most
QUERIES = 1024
NEIGHBOURS, BLOCKS = 16, 8  # queries that look equally far, at least, and such groups, at most


@dataclass(frozen=True, slots=True)
class Packed:
    """What is asked of a trace: `prompt` tokens come before it in `ids`, and the cuts count from there, ascending."""

    ids: Sequence[int]
    prompt: int
    cuts: Sequence[int]
    suffix: Sequence[int]
    limit: int
    done: Done
    control: frozenset[int]
    top: int = TOP


class Packing:
    """One row of its own, for one trace: first the places of one group's suffixes and answers, then the trace."""

    def __init__(self, rows: Rows, words: Words, asked: Packed) -> None:
        self.rows, self.words, self.asked = rows, words, asked
        self.end = asked.prompt + max(asked.cuts)
        self.each = len(asked.suffix) + asked.limit - 1
        most = max(1, min(QUERIES, SEEN // (self.end + QUERIES)) // self.each)
        self.groups = [asked.cuts[first : first + most] for first in range(0, len(asked.cuts), most)]
        self.before = self.each * len(self.groups[0])

    def answers(self) -> list[Answered]:
        began = time.perf_counter()
        self.rows.make_room(1, self.before + self.end)
        self._read_trace()
        found = [answer for group in self.groups for answer in self._ask(group)]
        self.rows.forget()
        seconds = (time.perf_counter() - began) / len(found)
        starts = [0, *(self.asked.prompt + cut for cut in self.asked.cuts)]
        return [
            answer.answered(prefilled=end - start + len(self.asked.suffix), cached=start, seconds=seconds)
            for answer, start, end in zip(found, starts, starts[1:], strict=False)
        ]

    def _read_trace(self) -> None:
        start = 0
        while start < self.end:
            end = min(start + (CHUNK if start else PLAIN), self.end)
            positions = torch.arange(start, end, device=self.rows.device)[None]
            mask = self.rows.mask(positions, end) if start else None
            ids = torch.tensor([list(self.asked.ids[start:end])], device=self.rows.device)
            places, upto = positions + self.before, self.before + end
            self.rows.forward([0], ids, positions, places, mask, upto, 1, self.before)
            start = end

    def _ask(self, cuts: Sequence[int]) -> list[Answer]:
        asked = self.asked
        answers = [Answer(asked.suffix, asked.limit, asked.done, asked.control, self.words) for _ in cuts]
        places = _Places(self.rows, self.before, [asked.prompt + cut for cut in cuts])
        asking = list(range(len(cuts)))
        logits = places.read(asking, [asked.suffix] * len(cuts))
        while True:
            read = Distributions.of(logits.to(self.rows.exact), asked.top)
            going = [place for place, one in enumerate(asking) if not answers[one].take(read, place)]
            asking = [asking[place] for place in going]
            if not asking:
                return answers
            logits = places.read(asking, [[read.tokens[place]] for place in going])


class _Places:
    """What is kept before the trace, from its beginning backward: whose each token is, and the position that it has."""

    def __init__(self, rows: Rows, count: int, bases: Sequence[int]) -> None:
        self.rows, self.count, self.bases = rows, count, bases
        self._lengths = [0] * len(bases)
        self._first = count
        self._owners = torch.full((count,), -1, device=rows.device)
        self._positions = torch.zeros(count, dtype=torch.long, device=rows.device)

    def read(self, cuts: Sequence[int], tokens: Sequence[Sequence[int]]) -> torch.Tensor:
        """One pass over the next tokens of these cuts, as many of each; logits [cut, token]."""
        width, device = len(tokens[0]), self.rows.device
        fresh = slice(self._first - len(cuts) * width, self._first)
        self._first = fresh.start
        starts = torch.tensor([self.bases[cut] + self._lengths[cut] for cut in cuts], device=device)
        self._owners[fresh] = torch.tensor(cuts, device=device).repeat_interleave(width)
        self._positions[fresh] = (starts[:, None] + torch.arange(width, device=device)).flatten()
        for cut in cuts:
            self._lengths[cut] += width
        stretches = self._stretches(cuts, width)
        upto = self._first + stretches[-1][2]
        ids = torch.tensor([[token for one in tokens for token in one]], device=device)
        places = torch.arange(fresh.start, fresh.stop, device=device)[None]
        keep = torch.arange(width - 1, len(cuts) * width, width, device=device)
        mask = self.rows.hiding(self._hidden(fresh, upto))
        blocks = [
            Block(first, last, seen, spread(mask[:, :, first:last, :seen], self.rows.sharing))
            for first, last, seen in stretches
        ]
        positions = self._positions[None, fresh]
        return self.rows.forward([0], ids, positions, places, mask, upto, keep, self._first, blocks)[0]

    def _stretches(self, cuts: Sequence[int], width: int) -> list[tuple[int, int, int]]:
        """Neighbouring cuts look at the trace as far as the last of them may: half of it is spared that way."""
        size = max(-(-NEIGHBOURS // width), -(-len(cuts) // BLOCKS))
        before = self.count - self._first
        return [
            (first * width, min(first + size, len(cuts)) * width, before + self.bases[cuts[first : first + size][-1]])
            for first in range(0, len(cuts), size)
        ]

    def _hidden(self, fresh: slice, upto: int) -> torch.Tensor:
        """As [1, 1, query, place]: the siblings, what comes later, and the trace after the cut."""
        owners, positions = self._owners[fresh, None], self._positions[fresh, None]
        bases = torch.tensor(self.bases, device=owners.device)[owners]
        apart = (self._owners[self._first :] != owners) | (self._positions[self._first :] > positions)
        trace = torch.arange(upto - self.count, device=owners.device) >= bases
        return torch.cat([apart, trace], -1)[None, None]
