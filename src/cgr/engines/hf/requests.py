"""What sessions ask of the decode loop: think on (sampled), be probed (greedy, with whole distributions), or be alone."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

import torch

from cgr.engines.base import TOP_MEAN, Answered, Done
from cgr.engines.hf.sampler import Chance, draw
from cgr.engines.text.detokenize import Words
from cgr.records import Token

TOP = 5
Take = Callable[[int, float, float], bool]


@dataclass(slots=True, eq=False)
class Row:
    """One session's place in the batch: the tokens that it holds, and how many of them have been read."""

    index: int
    ids: list[int] = field(default_factory=list)
    read: int = 0

    def rewind(self, length: int, tail: Sequence[int]) -> None:
        """Keep so many tokens and go on with these. The last token kept is read again: its logits are wanted."""
        del self.ids[length:]
        self.read = min(self.read, max(length - 1, 0))
        self.ids += tail


@dataclass(slots=True, eq=False)
class Thinking:
    """Thinks on: each token goes to `take`, with its log-probability and the mean of the highest there if they are wanted;
    `take` says whether it was the last. `banned` tokens are never drawn.

    `length` tokens of the row stand, `tail` follows them; chance counts its positions after the `prompt`.
    """

    row: Row
    length: int
    tail: Sequence[int]
    prompt: int
    temperature: float
    top_p: float
    chance: Chance
    take: Take
    banned: tuple[int, ...] = ()
    logprobs: bool = False
    future: Future[None] = field(default_factory=Future)
    keep: int = 1

    @property
    def settled(self) -> int:
        return len(self.row.ids) - 1

    def begin(self) -> None:
        self.row.rewind(self.length, self.tail)

    def uniform(self) -> float:
        return self.chance.at(len(self.row.ids) - self.prompt)

    def result(self) -> None:
        return None


@dataclass(slots=True, eq=False)
class Probing:
    """Decodes greedily after a suffix. What was guessed is read along with it: one pass checks it all."""

    row: Row
    length: int
    suffix: Sequence[int]
    limit: int
    done: Done
    guess: Sequence[int]
    control: frozenset[int]
    words: Words
    top: int = TOP
    future: Future[Answered] = field(default_factory=Future)
    answer: Answer = field(init=False)
    keep: int = 1
    _after: list[int] = field(default_factory=list)
    _cached: int = 0
    _began: float = 0.0

    @property
    def settled(self) -> int:
        return self.length - 1

    def begin(self) -> None:
        self._began = time.perf_counter()
        self.answer = Answer(self.suffix, self.limit, self.done, self.control, self.words)
        self.guess = self.guess[: self.limit - 1]
        self._after = self.row.ids[self.length :]
        self.row.rewind(self.length, [*self.suffix, *self.guess])
        self._cached, self.keep = self.row.read, 1 + len(self.guess)

    def take(self, read: Distributions) -> bool:
        """Go on as far as the guess was right, and one token further. True when there is an answer."""
        start = self.length + len(self.suffix) + len(self.answer.tokens)
        for number, guessed in zip_longest(range(self.keep), self.guess[: self.keep - 1]):
            token = read.tokens[number]
            if self.answer.take(read, number):
                return True
            if token != guessed:
                del self.row.ids[start + number :]
                self.row.ids.append(token)
                self.row.read, self.keep = start + number, 1
                return False
        raise AssertionError

    def result(self) -> Answered:
        """What came of it; the row is left as it was."""
        self.row.rewind(self.length, self._after)
        whole = self.length + len(self.suffix)
        seconds = time.perf_counter() - self._began
        return self.answer.answered(prefilled=whole - self._cached, cached=self._cached, seconds=seconds)


@dataclass(frozen=True, slots=True)
class Distributions:
    """What was read at some places: the likeliest token of each, its raw log-probability, the runners-up, the entropy."""

    tokens: list[int]
    logprobs: list[float]
    top: list[list[tuple[int, float]]]
    entropy: list[float]

    @classmethod
    def of(cls, logits: torch.Tensor, top: int = TOP) -> Distributions:
        """Of logits [place, token]: the softmax at temperature 1, summed in double precision; entropy in bits."""
        values, ids = logits.topk(min(top, logits.shape[-1]), dim=-1)
        below = (logits - values[:, :1]).float()
        weights = below.exp()
        total = weights.sum(-1, keepdim=True, dtype=torch.float64)
        mean = (weights * below).nansum(-1, keepdim=True, dtype=torch.float64) / total  # of -inf there is none
        logprobs = (values - values[:, :1]).double() - total.log()
        likeliest = [list(zip(*pair, strict=True)) for pair in zip(ids.tolist(), logprobs.tolist(), strict=True)]
        entropy = (total.log() - mean) / math.log(2)
        return cls(ids[:, 0].tolist(), logprobs[:, 0].tolist(), likeliest, entropy[:, 0].tolist())


class Answer:
    """An answer as it is decoded, token by token."""

    def __init__(self, suffix: Sequence[int], limit: int, done: Done, control: frozenset[int], words: Words) -> None:
        self.limit, self.done, self.control = limit, done, control
        self.tokens: list[Token] = []
        self.ended = False
        self.entropy: float | None = None
        self._pieces = words.pieces(suffix)

    def take(self, read: Distributions, place: int) -> bool:
        """The likeliest token at this place. True when there is enough, or the model ended its turn."""
        token = read.tokens[place]
        if self.entropy is None:
            self.entropy = read.entropy[place]
        if token in self.control:
            self.ended = True
            return True
        self.tokens.append(Token(token, self._pieces.feed(token), read.logprobs[place], tuple(read.top[place])))
        return len(self.tokens) >= self.limit or self.done(self.tokens)

    def answered(self, *, prefilled: int, cached: int, seconds: float) -> Answered:
        return Answered(tuple(self.tokens), self.ended, prefilled, cached, seconds, entropy=self.entropy)


@dataclass(slots=True, eq=False)
class Alone:
    """Work that has the model for itself."""

    work: Callable[[], Any]
    future: Future[Any] = field(default_factory=Future)


@dataclass(slots=True, eq=False)
class Opened:
    """Somebody wants a row."""

    future: Future[Row] = field(default_factory=Future)


@dataclass(slots=True, eq=False)
class Released:
    """Somebody gives one back."""

    row: Row


Job = Thinking | Probing
Request = Job | Alone | Opened | Released


@dataclass(frozen=True, slots=True, eq=False)
class Manner:
    """How the thinkers in a batch are sampled: tensors that only change when the batch does. Temperature 0 is greedy."""

    jobs: list[Thinking]
    temperature: torch.Tensor
    top_p: torch.Tensor | None
    banned: tuple[torch.Tensor, torch.Tensor] | None
    greedy: torch.Tensor | None
    all_greedy: bool
    logprobs: bool

    @classmethod
    def of(cls, jobs: list[Thinking], device: torch.device) -> Manner:
        banned = [(number, token) for number, job in enumerate(jobs) for token in job.banned]
        pairs = torch.tensor(banned, device=device).T if banned else None
        top_p = [job.top_p for job in jobs]
        greedy = [job.temperature == 0 for job in jobs]
        return cls(
            jobs,
            torch.tensor([job.temperature or 1.0 for job in jobs], dtype=torch.float64, device=device),
            torch.tensor(top_p, dtype=torch.float64, device=device) if min(top_p) < 1 else None,
            (pairs[0], pairs[1]) if pairs is not None else None,
            torch.tensor(greedy, device=device) if any(greedy) else None,
            all(greedy),
            any(job.logprobs for job in jobs),
        )

    def sample(self, logits: torch.Tensor) -> tuple[list[int], list[float], list[float]]:
        """A token for each job; where somebody wants them, its raw log-probability and the mean of the highest there, from
        before any ban."""
        raw = logits
        if self.banned is not None:
            logits = logits.clone()
            logits[self.banned] = -torch.inf
        chosen = self._chosen(logits)
        tokens: list[int] = chosen.tolist()
        if not self.logprobs:
            return tokens, [math.nan] * len(tokens), [math.nan] * len(tokens)
        found = raw.double().log_softmax(-1)
        tops = found.topk(min(TOP_MEAN, found.shape[-1]), dim=-1).values.mean(-1)
        return tokens, found.gather(-1, chosen[:, None])[:, 0].tolist(), tops.tolist()

    def _chosen(self, logits: torch.Tensor) -> torch.Tensor:
        if self.all_greedy:
            return logits.argmax(-1)
        drawn = draw(logits, self.temperature, self.top_p, [job.uniform() for job in self.jobs])
        return drawn if self.greedy is None else torch.where(self.greedy, logits.argmax(-1), drawn)
