"""The embedded model's own problems, none of which it saw in training: integers 0..999, made from a seed."""

from __future__ import annotations

from itertools import islice

from cgr.model.problems import unseen
from cgr.records import Question

NAME = "arithmetic"
LIMIT = 30  # there is no end to them


def make(limit: int | None, seed: int) -> tuple[Question, ...]:
    """The first problems of a seed; fewer are the beginning of more."""
    return tuple(
        Question(f"s{seed}-{number:02d}-{problem.family}-{problem.level}", problem.text, str(problem.answer), "integer")
        for number, problem in enumerate(islice(unseen(seed), limit or LIMIT), start=1)
    )
