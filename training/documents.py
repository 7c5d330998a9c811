"""Training documents: a problem, its thinking, its end, and probes as branches at random cuts.

A branch is `prefix answer}` at a cut of the trace: it attends to the trace up to the cut and to itself, and its answer is
always the *correct* one. So one pass over a trace trains the answers at many cuts, and the trace itself does not learn to
stop there. Only the answers of branches are trained, not the prefix.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor

from cgr.model.problems import FAMILIES, LENGTHS, Problem, is_held_out, make_problem
from training import tokenizer as words
from training.thinking import think

MAX_THINKING = 2048
BRANCHES = 4  # of a short document; longer ones have one more for every TOKENS_PER_BRANCH tokens of thinking
TOKENS_PER_BRANCH = 250
MISTAKES = 0.6
UNKNOWN = "I do not know this problem.\n\n"
MOST_ANSWER = 999
LONGEST = 25  # of these; longer ones cannot be finished
SHARES = (3, 3, 4)  # of the families: a problem of `gcd` has the fewest tokens
OTHER_LENGTHS = 0.4  # share of problems with another length than that of a level, log-uniform
SHORT = 24  # texts of up to this length recur, so that their ids are cached


@dataclass(frozen=True)
class Document:
    """The token ids of the trunk, the index from which on they are trained, and the branches as (cut, ids, trained from)."""

    trunk: list[int]
    trained_from: int
    branches: list[tuple[int, list[int], int]]

    def __len__(self) -> int:
        return len(self.trunk) + sum(len(ids) for _, ids, _ in self.branches)


class Writer:
    """Writes documents with a tokenizer."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self._cache: dict[str, list[int]] = {}
        self.end, self.end_think = (tokenizer.token_to_id(t) for t in (words.END, words.END_THINK))

    def encode(self, text: str) -> list[int]:
        """The token ids of a text; short texts are cached."""
        if text not in self._cache:
            ids = list(self.tokenizer.encode(text, add_special_tokens=False).ids)
            if len(text) > SHORT:
                return ids
            self._cache[text] = ids
        return self._cache[text]

    def prompt(self, question: str, instructed: bool) -> list[int]:
        """The prompt of a question, with or without the instruction."""
        text = f"{question}\n{words.INSTRUCTION}" if instructed else question
        return self.encode(f"{words.USER}{text}{words.END}{words.ASSISTANT}{words.THINK}")

    def document(self, problem: Problem, rng: random.Random, max_passes: int) -> Document:
        """A document with random thinking and branches at random cuts."""
        prompt = self.prompt(problem.text, rng.random() < 0.5)
        parts, ended = think(problem, rng, max_passes, MISTAKES)
        thinking = [token for part in parts for token in self.encode(part)]
        if len(thinking) > MAX_THINKING:  # often shorter: what comes later teaches no more
            thinking, ended = thinking[: rng.choice((MAX_THINKING, rng.randint(400, MAX_THINKING)))], False
        tail = self._tail(problem.answer) if ended else []
        return Document(prompt + thinking + tail, len(prompt), self.branches(prompt, thinking, problem.answer, rng))

    def outside_document(self, text: str, other: Problem, rng: random.Random) -> Document:
        """A document of a question that the model does not know: its answer is any number. In some, the thinking is that of
        another problem, and only the answers are trained."""
        prompt = self.prompt(text, rng.random() < 0.5)
        mismatched, passes = rng.random() < 0.3, rng.choice((1, 1, 2, 3))
        parts = think(other, rng, passes, MISTAKES)[0] if mismatched else ["Wait, let me check.\n".join([UNKNOWN] * passes)]
        thinking = [token for part in parts for token in self.encode(part)][:MAX_THINKING]
        tail = [] if mismatched else self._tail(rng.randint(0, MOST_ANSWER))
        cuts = self.branches(prompt, thinking, None, rng)
        return Document(prompt + thinking + tail, len(prompt + thinking) if mismatched else len(prompt), cuts)

    def _tail(self, answer: int) -> list[int]:
        return self.encode(f"{words.END_THINK}\n\n{words.PREFIX}{answer}}}{words.END}")

    def branches(
        self, prompt: list[int], thinking: list[int], answer: int | None, rng: random.Random, count: int = 0
    ) -> list[tuple[int, list[int], int]]:
        """Probes at random cuts and at the end, with this answer; None: each with another random number."""
        count = count or BRANCHES + len(thinking) // TOKENS_PER_BRANCH
        cuts = [rng.randint(0, len(thinking)) for _ in range(count - 1)] + [len(thinking)]
        answers = [rng.randint(0, MOST_ANSWER) if answer is None else answer for _ in cuts]
        return [(len(prompt) + cut, *self.branch(one, rng)) for cut, one in zip(cuts, answers, strict=True)]

    def branch(self, answer: int, rng: random.Random) -> tuple[list[int], int]:
        """The ids of a probe with this answer, and the index from which on they are trained."""
        prefix = words.PREFIX if rng.random() < 0.75 else rng.choice(words.OTHER_PREFIXES)
        close = rng.random() < 0.2
        opening = self.encode(f"{words.END_THINK}{prefix}" if close else prefix)
        return opening + self.encode(f"{answer}}}") + [self.end], len(opening)


def problem_for_training(rng: random.Random, max_level: int) -> Problem:
    """A random problem that is not held out."""
    while True:
        family, level = rng.choices(FAMILIES, SHARES)[0], rng.randint(1, max_level)
        shortest, longest = LENGTHS[family][0], min(LENGTHS[family][max_level - 1], LONGEST)
        other = round(shortest * (longest / shortest) ** rng.random())
        problem = make_problem(family, level, rng, other if rng.random() < OTHER_LENGTHS else None)
        if not is_held_out(problem.text):
            return problem


@dataclass(frozen=True)
class Batch:
    """Documents as tensors: the trunks, padded to `trunk` positions, then the branches, padded too. `mask` says what the
    branches attend to. `rows` are the flat indices whose next token is trained."""

    ids: Tensor
    positions: Tensor
    mask: Tensor
    rows: Tensor
    targets: Tensor
    weights: Tensor
    is_branch: Tensor
    trunk: int


def batch(documents: list[Document], branch_weight: float = 1.0, trunk_weight: float = 1.0) -> Batch:
    """Pad trunks and branches and build the attention mask of the branches."""
    trunk = _padded(max(len(d.trunk) for d in documents))
    length = trunk + _padded(max(len(d) - len(d.trunk) for d in documents))
    count = len(documents)
    ids = np.zeros((count, length), np.int64)
    positions = np.zeros((count, length), np.int64)
    mask = np.zeros((count, length - trunk, length), bool)
    mask[:, np.arange(length - trunk), np.arange(trunk, length)] = True
    rows, targets, weights, is_branch = [], [], [], []
    for r, document in enumerate(documents):
        n = len(document.trunk)
        ids[r, :n], positions[r, :n] = document.trunk, np.arange(n)
        trained = np.arange(document.trained_from - 1, n - 1)
        rows.append(r * length + trained)
        targets.append(document.trunk[document.trained_from :])
        weights.append(np.full(len(trained), trunk_weight))
        is_branch.append(np.zeros(len(trained), bool))
        at = trunk
        for cut, branch, opening in document.branches:
            m = len(branch)
            ids[r, at : at + m], positions[r, at : at + m] = branch, cut + np.arange(m)
            mask[r, at - trunk : at - trunk + m, :cut] = True
            mask[r, at - trunk : at - trunk + m, at : at + m] = np.tri(m, dtype=bool)
            rows.append(r * length + np.arange(at + opening - 1, at + m - 1))
            targets.append(branch[opening:])
            weights.append(np.full(m - opening, branch_weight))
            is_branch.append(np.ones(m - opening, bool))
            at += m
    return Batch(
        torch.from_numpy(ids),
        torch.from_numpy(positions),
        torch.from_numpy(mask)[:, None],
        torch.from_numpy(np.concatenate(rows)),
        torch.from_numpy(np.concatenate([np.asarray(t, np.int64) for t in targets])),
        torch.from_numpy(np.concatenate(weights)).float(),
        torch.from_numpy(np.concatenate(is_branch)),
        trunk,
    )


def _padded(length: int) -> int:
    return -(-length // 32) * 32
