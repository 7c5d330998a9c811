"""Problems for the embedded model that it did not see in training: integers 0..999, generated from a seed.

Small kinds of problems have a few dozen texts, so two seeds would often draw the same one. Therefore a text belongs to the
smallest of the seeds 0 to 9 that has it among its first 1,000 problems, and other seeds leave it out. Two seeds above 9 can
share a few texts.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import islice

from cgr.model.problems import Problem, unseen
from cgr.records import Question

NAME = "arithmetic"
DEFAULT_COUNT = 30  # the generator is endless
SEEDS = 10  # that are kept apart from each other, and from every other seed
FIRST = 1000  # problems of each of them


def make(limit: int | None, seed: int) -> tuple[Question, ...]:
    """The first `limit` problems of a seed. A smaller limit gives the first part of the same sequence."""
    return tuple(
        Question(f"s{seed}-{number:02d}-{problem.family}-{problem.level}", problem.text, str(problem.answer), "integer")
        for number, problem in islice(_problems(seed), limit or DEFAULT_COUNT)
    )


def _problems(seed: int) -> Iterator[tuple[int, Problem]]:
    """The problems of a seed, each with its number; those that belong to another seed are left out."""
    lower = range(seed if 0 <= seed < SEEDS else SEEDS)
    taken: frozenset[str] = frozenset().union(*map(_texts, lower))
    return ((number, one) for number, one in enumerate(unseen(seed), start=1) if one.text not in taken)


@cache
def _texts(seed: int) -> frozenset[str]:
    """The texts that belong to one of the seeds that are kept apart."""
    return frozenset(problem.text for _, problem in islice(_problems(seed), FIRST))
