"""From the probabilities of an answer's tokens to one number in [0, 1].

The paper's Eq. 3 takes the minimum: a single unsure digit spoils the whole answer, and nothing may hide it. The others are
its ablations. An answer without content has certainty 0, whatever the aggregate.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from cgr.errors import UnknownName

DEFAULT = "min"


def minimum(probabilities: Sequence[float]) -> float:
    return min(probabilities)


def mean(probabilities: Sequence[float]) -> float:
    return min(math.fsum(probabilities) / len(probabilities), 1.0)


def product(probabilities: Sequence[float]) -> float:
    return math.prod(probabilities)


def geometric_mean(probabilities: Sequence[float]) -> float:
    if min(probabilities) <= 0:
        return 0.0
    return min(math.exp(math.fsum(map(math.log, probabilities)) / len(probabilities)), 1.0)


AGGREGATES: dict[str, Callable[[Sequence[float]], float]] = {
    "min": minimum,
    "mean": mean,
    "product": product,
    "geometric-mean": geometric_mean,
}

# Adding a token can only lower these, so one token below the threshold settles the matter.
FALLING = frozenset({"min", "product"})


def aggregate(name: str, probabilities: Sequence[float]) -> float:
    """The certainty of an answer whose content tokens had these probabilities."""
    return AGGREGATES[check(name)](probabilities) if probabilities else 0.0


def check(name: str) -> str:
    """The name back, if it is one."""
    if name not in AGGREGATES:
        raise UnknownName.among("aggregate", name, AGGREGATES)
    return name


def probability(logprob: float) -> float:
    """A raw log-probability as a probability; rounding may have lifted it a hair above zero."""
    return math.exp(min(logprob, 0.0))
