"""What the scheduler runs: thinking, which is sampled, and probes, which are greedy and give whole distributions.

A session owns a slot. Every job first sets what its slot contains, so a job never depends on the one before it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

import torch

from cgr.engines.base import Answered, Done, Ids, Sampling
from cgr.engines.hf.load import LoadedModel
from cgr.engines.hf.sampler import uniform_at
from cgr.records import Token

MIN_TOP = 5  # alternatives that are returned for each token of an answer, at least
OnToken = Callable[[int, float, float], bool]


@dataclass(slots=True, eq=False)
class Slot:
    """One session's tokens, how many of them are in the KV cache, and its row there, which the scheduler assigns."""

    ids: list[int]
    cached: int = 0
    index: int = -1

    def rewind(self, length: int, tail: Ids) -> None:
        """Keep `length` tokens and continue with `tail`. The last kept token is computed again: its logits are needed."""
        self.replace_end(length, tail)
        self.cached = min(self.cached, max(length - 1, 0))

    def replace_end(self, length: int, tail: Ids) -> None:
        """Keep `length` tokens, which stay in the KV cache, and continue with `tail`."""
        del self.ids[length:]
        self.cached = min(self.cached, length)
        self.ids += tail


@dataclass(slots=True, eq=False)
class _Job:
    """Decoding after `length` tokens of the slot. `prefilled`: how many tokens must be in the KV cache before it.

    `keep`: how many of the last positions the next pass must return logits for.
    """

    slot: Slot
    length: int
    future: Future[Any] = field(default_factory=Future, init=False)
    prefilled: int = field(default=0, init=False)
    keep: int = field(default=1, init=False)

    def result(self) -> Any:
        """The result of the job once it is complete."""


@dataclass(slots=True, eq=False)
class ThinkJob(_Job):
    """Sample tokens after `length` tokens of the slot and `tail`.

    `on_token` gets each token, its log-probability and the mean of the highest ones (NaN unless the sampling has
    `logprobs`), and returns True after the last token. `banned` tokens are never sampled. `prompt`: its length.
    """

    tail: Ids
    prompt: int
    sampling: Sampling
    on_token: OnToken
    banned: tuple[int, ...] = ()

    def begin(self) -> None:
        """Set what the slot contains."""
        self.slot.rewind(self.length, self.tail)
        self.prefilled = len(self.slot.ids) - 1

    def uniform(self) -> float:
        """The uniform number for the next token; positions count from the end of the prompt."""
        return uniform_at(self.sampling.seed, len(self.slot.ids) - self.prompt)


@dataclass(frozen=True, slots=True)
class ProbeQuery:
    """What a probe decodes: at most `limit` tokens after the suffix, until `done` or a control token.

    `top`: how many alternatives are returned for each token; control tokens are then returned like any other.
    """

    model: LoadedModel
    suffix: Ids
    limit: int
    done: Done
    top: int


@dataclass(slots=True, eq=False)
class ProbeJob(_Job):
    """Decode greedily after `length` tokens of the slot and the suffix. A guess is checked in the same pass."""

    query: ProbeQuery
    guess: Ids
    _answer: AnswerDecoder = field(init=False)
    _after: list[int] = field(init=False)
    _cached: int = field(init=False)
    _began: float = field(init=False)

    def begin(self) -> None:
        """Set what the slot contains: the thinking, the suffix and the guess."""
        self._began = time.perf_counter()
        self._answer = AnswerDecoder(self.query)
        self.guess = self.guess[: self.query.limit - 1]
        self._after = self.slot.ids[self.length :]
        self.slot.rewind(self.length, [*self.query.suffix, *self.guess])
        self._cached, self.keep, self.prefilled = self.slot.cached, 1 + len(self.guess), self.length - 1

    def take(self, distributions: Sequence[Distribution]) -> bool:
        """Accept tokens as far as the guess was right, and one more. True when the answer is complete."""
        start = self.length + len(self.query.suffix) + len(self._answer.tokens)
        for number, (found, guessed) in enumerate(zip_longest(distributions, self.guess[: self.keep - 1])):
            if self._answer.take(found):
                return True
            if found.token != guessed:
                self.slot.replace_end(start + number, [found.token])
                self.keep = 1
                return False
        raise AssertionError

    def result(self) -> Answered:
        """The answer and its cost. The slot gets back what it contained before."""
        self.slot.rewind(self.length, self._after)
        total = self.length + len(self.query.suffix)
        seconds = time.perf_counter() - self._began
        return self._answer.answered(prefilled=total - self._cached, cached=self._cached, seconds=seconds)


DecodeJob = ThinkJob | ProbeJob


@dataclass(frozen=True, slots=True)
class Distribution:
    """At one position: the likeliest tokens with their raw log-probabilities, and the entropy in bits."""

    top: tuple[tuple[int, float], ...]
    entropy: float

    @property
    def token(self) -> int:
        """The likeliest token."""
        return self.top[0][0]


def distributions_of(logits: torch.Tensor, top: int) -> list[Distribution]:
    """From logits [position, token]: the softmax at temperature 1, summed in double precision."""
    values, ids = logits.topk(min(max(top, MIN_TOP), logits.shape[-1]), dim=-1)
    below = (logits - values[:, :1]).float()
    weights = below.exp()
    total = weights.sum(-1, keepdim=True, dtype=torch.float64)
    mean = (weights * below).nansum(-1, keepdim=True, dtype=torch.float64) / total  # 0 * -inf is NaN: left out
    logprobs = (values - values[:, :1]).double() - total.log()
    likeliest = (tuple(zip(*pair, strict=True)) for pair in zip(ids.tolist(), logprobs.tolist(), strict=True))
    entropy = (total.log() - mean) / math.log(2)
    return list(map(Distribution, likeliest, entropy[:, 0].tolist()))


class AnswerDecoder:
    """The answer to a probe, decoded token by token. A control token ends it and is not part of it."""

    def __init__(self, query: ProbeQuery) -> None:
        self.query = query
        self.tokens: list[Token] = []
        self.ended = False
        self.entropy: float | None = None
        self._detokenizer = query.model.tokenizer.detokenizer(query.suffix)

    def take(self, found: Distribution) -> bool:
        """Add the likeliest token. True when there are enough tokens, or the model ended its turn."""
        if self.entropy is None:
            self.entropy = found.entropy
        if found.token in self.query.model.control and not self.query.top:
            self.ended = True
            return True
        self.tokens.append(Token(found.token, self._detokenizer.feed(found.token), found.top[0][1], found.top))
        return len(self.tokens) >= self.query.limit or self.query.done(self.tokens)

    def answered(self, *, prefilled: int, cached: int, seconds: float) -> Answered:
        """The answer so far, with its cost."""
        return Answered(tuple(self.tokens), self.ended, prefilled, cached, seconds, entropy=self.entropy)
