"""Problems for the embedded model that it did not see in training: integers 0..999, generated from a seed."""

from __future__ import annotations

from itertools import islice

from cgr.model.problems import unseen
from cgr.records import Question

NAME = "arithmetic"
DEFAULT_COUNT = 30  # the generator is endless


def make(limit: int | None, seed: int) -> tuple[Question, ...]:
    """The first `limit` problems of a seed. A smaller limit gives the first part of the same sequence."""
    return tuple(
        Question(f"s{seed}-{number:02d}-{problem.family}-{problem.level}", problem.text, str(problem.answer), "integer")
        for number, problem in enumerate(islice(unseen(seed), limit or DEFAULT_COUNT), start=1)
    )
