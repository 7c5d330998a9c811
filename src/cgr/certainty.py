"""From the probabilities of an answer's tokens to one number in [0, 1].

The paper's Eq. 3 takes the minimum: one uncertain digit makes the whole answer uncertain. The others are for its
ablations. An answer without content has certainty 0 under every aggregate.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from cgr.errors import UnknownName

DEFAULT = "min"


def minimum(probabilities: Sequence[float]) -> float:
    """The smallest probability."""
    return min(probabilities)


def mean(probabilities: Sequence[float]) -> float:
    """The arithmetic mean, at most 1 despite rounding."""
    return min(math.fsum(probabilities) / len(probabilities), 1.0)


def product(probabilities: Sequence[float]) -> float:
    """The product: the probability of the whole answer."""
    return math.prod(probabilities)


def geometric_mean(probabilities: Sequence[float]) -> float:
    """The geometric mean, which does not depend on the number of tokens as the product does."""
    if min(probabilities) <= 0:
        return 0.0
    return min(math.exp(math.fsum(map(math.log, probabilities)) / len(probabilities)), 1.0)


AGGREGATES: dict[str, Callable[[Sequence[float]], float]] = {
    "min": minimum,
    "mean": mean,
    "product": product,
    "geometric-mean": geometric_mean,
}

# A further token can only lower these, so decoding can stop at the first value below the threshold.
FALLING = frozenset({"min", "product"})


def aggregate(name: str, probabilities: Sequence[float]) -> float:
    """The certainty of an answer whose content tokens had these probabilities."""
    return AGGREGATES[check(name)](probabilities) if probabilities else 0.0


def check(name: str) -> str:
    """The name, or an error if there is no such aggregate."""
    if name not in AGGREGATES:
        raise UnknownName.among("aggregate", name, AGGREGATES)
    return name


def probability(logprob: float) -> float:
    """The probability for a raw log-probability, which rounding may have lifted slightly above zero."""
    return math.exp(min(logprob, 0.0))
