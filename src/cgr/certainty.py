"""From the probabilities of an answer's tokens to one number in [0, 1].

The paper's Eq. 3 takes the minimum: one uncertain digit makes the whole answer uncertain. Mean, product and geometric mean
are for its ablations. `options` is for questions with lettered options: the probability of the chosen letter among the
letters that are options. An answer without content has certainty 0 under every aggregate.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence

from cgr.errors import UnknownName
from cgr.records import OptionProbabilities, Probe

DEFAULT = "min"
OPTIONS = "options"
_LETTER = re.compile(r"\(?([A-Za-z])(?:[).:](?:\s.*)?)?", re.DOTALL)


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

NAMES = (*AGGREGATES, OPTIONS)

# A further token can only lower these, so decoding can stop at the first value below the threshold.
FALLING = frozenset({"min", "product"})


def aggregate(name: str, probabilities: Sequence[float]) -> float:
    """The certainty of an answer whose content tokens had these probabilities; `options` is then the minimum."""
    return AGGREGATES.get(check(name), minimum)(probabilities) if probabilities else 0.0


def of_probe(name: str, probe: Probe) -> float:
    """The certainty of a probe under this aggregate. `options` is the minimum if the probabilities of the options are not
    known, or if the answer is not one of them."""
    among = over_options(probe.answer, probe.options) if name == OPTIONS else None
    return aggregate(name, probe.probabilities) if among is None else among


def over_options(answer: str, options: OptionProbabilities) -> float | None:
    """The probability of the answer's letter, normalised over the options; None if it is not one of them."""
    chosen, total = dict(options).get(letter_in(answer) or ""), math.fsum(chance for _, chance in options)
    return None if chosen is None or not total else min(chosen / total, 1.0)


def letter_in(answer: str) -> str | None:
    """The letter of an answer that is one: `B`, `b`, `(B)`, `B.` or `B) because ...`."""
    match = _LETTER.fullmatch(answer.strip().strip("$").strip())
    return match[1].upper() if match else None


def falls(name: str, options: Sequence[object] = ()) -> bool:
    """Whether a further token can only lower the certainty. `options`: those of the question, if there are any."""
    return name in FALLING or (name == OPTIONS and not options)


def check(name: str) -> str:
    """The name, or an error if there is no such aggregate."""
    if name not in NAMES:
        raise UnknownName.among("aggregate", name, NAMES)
    return name


def probability(logprob: float) -> float:
    """The probability for a raw log-probability, which rounding may have lifted slightly above zero."""
    return math.exp(min(logprob, 0.0))
