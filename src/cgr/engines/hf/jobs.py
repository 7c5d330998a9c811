"""What the scheduler runs: thinking (sampled), probes (greedy, with whole distributions), and work between two passes.

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

from cgr.engines.base import Answered, Done, Sampling
from cgr.engines.hf.sampler import KeyedRandom
from cgr.engines.text.detokenize import HFTokenizer
from cgr.records import Token

OnToken = Callable[[int, float, float], bool]


@dataclass(slots=True, eq=False)
class Slot:
    """One session's tokens, and how many of them are in the KV cache.

    `index`: the row of the KV cache, which the scheduler assigns.
    """

    ids: list[int]
    cached: int = 0
    index: int = -1

    def rewind(self, length: int, tail: Sequence[int]) -> None:
        """Keep `length` tokens and continue with `tail`. The last kept token is computed again: its logits are needed."""
        self.replace_end(length, tail)
        self.cached = min(self.cached, max(length - 1, 0))

    def replace_end(self, length: int, tail: Sequence[int]) -> None:
        """Keep `length` tokens, which stay in the KV cache, and continue with `tail`."""
        del self.ids[length:]
        self.cached = min(self.cached, length)
        self.ids += tail


@dataclass(slots=True, eq=False)
class ThinkJob:
    """Sample tokens after `length` tokens of the slot and `tail`.

    `on_token` gets each token, its log-probability and the mean of the highest ones (NaN without `logprobs`), and returns
    True after the last token. `banned` tokens are never sampled. Positions of `random` count from the end of the `prompt`.
    """

    slot: Slot
    length: int
    tail: Sequence[int]
    prompt: int
    sampling: Sampling
    random: KeyedRandom
    on_token: OnToken
    banned: tuple[int, ...] = ()
    logprobs: bool = False
    future: Future[None] = field(default_factory=Future)
    keep: int = 1

    @property
    def prefilled(self) -> int:
        """How many tokens must be in the KV cache before the first token is sampled."""
        return len(self.slot.ids) - 1

    def begin(self) -> None:
        """Set what the slot contains."""
        self.slot.rewind(self.length, self.tail)

    def uniform(self) -> float:
        """The uniform number for the next token."""
        return self.random.at(len(self.slot.ids) - self.prompt)

    def result(self) -> None:
        """Nothing: `on_token` has everything."""


@dataclass(frozen=True, slots=True)
class ProbeQuery:
    """What a probe decodes: at most `limit` tokens after the suffix, until `done` or a token among `control`.

    `top`: how many alternatives are returned for each token.
    """

    suffix: Sequence[int]
    limit: int
    done: Done
    control: frozenset[int]
    tokenizer: HFTokenizer
    top: int


@dataclass(slots=True, eq=False)
class ProbeJob:
    """Decode greedily after `length` tokens of the slot and the suffix. A guess is checked in the same pass.

    `keep`: how many of the last positions the next pass must return logits for.
    """

    slot: Slot
    length: int
    query: ProbeQuery
    guess: Sequence[int]
    future: Future[Answered] = field(default_factory=Future)
    keep: int = 1
    _answer: AnswerDecoder = field(init=False)
    _after: list[int] = field(default_factory=list)
    _cached: int = 0
    _began: float = 0.0

    @property
    def prefilled(self) -> int:
        """How many tokens must be in the KV cache before the suffix is computed."""
        return self.length - 1

    def begin(self) -> None:
        """Set what the slot contains: the thinking, the suffix and the guess."""
        self._began = time.perf_counter()
        self._answer = AnswerDecoder(self.query)
        self.guess = self.guess[: self.query.limit - 1]
        self._after = self.slot.ids[self.length :]
        self.slot.rewind(self.length, [*self.query.suffix, *self.guess])
        self._cached, self.keep = self.slot.cached, 1 + len(self.guess)

    def take(self, distributions: Distributions) -> bool:
        """Accept tokens as far as the guess was right, and one more. True when the answer is complete."""
        start = self.length + len(self.query.suffix) + len(self._answer.tokens)
        for number, guessed in zip_longest(range(self.keep), self.guess[: self.keep - 1]):
            token = distributions.tokens[number]
            if self._answer.take(distributions, number):
                return True
            if token != guessed:
                del self.slot.ids[start + number :]
                self.slot.ids.append(token)
                self.slot.cached, self.keep = start + number, 1
                return False
        raise AssertionError

    def result(self) -> Answered:
        """The answer and its cost. The slot gets back what it contained before."""
        self.slot.rewind(self.length, self._after)
        total = self.length + len(self.query.suffix)
        seconds = time.perf_counter() - self._began
        return self._answer.answered(prefilled=total - self._cached, cached=self._cached, seconds=seconds)


@dataclass(slots=True, eq=False)
class ExclusiveJob:
    """Work that runs on the scheduler's thread between two passes, with no other job beside it."""

    work: Callable[[], Any]
    future: Future[Any] = field(default_factory=Future)


@dataclass(slots=True, eq=False)
class Reserve:
    """A session has begun: its slot gets a row of the KV cache, and its first job will come soon."""

    slot: Slot


@dataclass(slots=True, eq=False)
class Release:
    """A session has ended: its jobs are dropped and its slot is free."""

    slot: Slot


DecodeJob = ThinkJob | ProbeJob
Request = DecodeJob | ExclusiveJob | Reserve | Release


@dataclass(frozen=True, slots=True)
class Distributions:
    """For some positions: the likeliest token, its raw log-probability, the top alternatives, and the entropy in bits."""

    tokens: list[int]
    logprobs: list[float]
    top: list[list[tuple[int, float]]]
    entropy: list[float]

    @classmethod
    def of(cls, logits: torch.Tensor, top: int) -> Distributions:
        """From logits [position, token]: the softmax at temperature 1, summed in double precision."""
        values, ids = logits.topk(min(top, logits.shape[-1]), dim=-1)
        below = (logits - values[:, :1]).float()
        weights = below.exp()
        total = weights.sum(-1, keepdim=True, dtype=torch.float64)
        mean = (weights * below).nansum(-1, keepdim=True, dtype=torch.float64) / total  # 0 * -inf is NaN: left out
        logprobs = (values - values[:, :1]).double() - total.log()
        likeliest = [list(zip(*pair, strict=True)) for pair in zip(ids.tolist(), logprobs.tolist(), strict=True)]
        entropy = (total.log() - mean) / math.log(2)
        return cls(ids[:, 0].tolist(), logprobs[:, 0].tolist(), likeliest, entropy[:, 0].tolist())


class AnswerDecoder:
    """The answer to a probe, decoded token by token. A control token ends it and is not part of it."""

    def __init__(self, query: ProbeQuery) -> None:
        self.query = query
        self.tokens: list[Token] = []
        self.ended = False
        self.entropy: float | None = None
        self._detokenizer = query.tokenizer.detokenizer(query.suffix)

    def take(self, distributions: Distributions, position: int) -> bool:
        """Add the likeliest token at this position. True when there are enough tokens, or the model ended its turn."""
        token = distributions.tokens[position]
        if self.entropy is None:
            self.entropy = distributions.entropy[position]
        if token in self.query.control:
            self.ended = True
            return True
        text, logprob = self._detokenizer.feed(token), distributions.logprobs[position]
        self.tokens.append(Token(token, text, logprob, tuple(distributions.top[position])))
        return len(self.tokens) >= self.query.limit or self.query.done(self.tokens)

    def answered(self, *, prefilled: int, cached: int, seconds: float) -> Answered:
        """The answer so far, with its cost."""
        return Answered(tuple(self.tokens), self.ended, prefilled, cached, seconds, entropy=self.entropy)
