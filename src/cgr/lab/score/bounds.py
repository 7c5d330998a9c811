"""Confidence bounds over questions that keep their width when nothing changed, and what they say about equal accuracy.

The unit is the question. With one trace of each question, losses are 0 or 1 and changes are -1, 0 or 1: the bounds are
exact (Clopper and Pearson, on the questions that changed). With several, the mean over the traces of a question is used:
the bounds are by betting (Waudby-Smith and Ramdas). The kind follows from the number of traces, never from the result.
Betting reads the questions in an order, which `hash_order` fixes before any result is seen. A bootstrap decides nothing
here: where no answer happened to change, its interval has no width.

Risks are means in [0, 1], changes are means in [-1, 1].
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Literal

import numpy as np

from cgr.lab.types import Floats, Interval, Ints

Kind = Literal["exact", "betting"]
EXACT: Kind = "exact"
BETTING: Kind = "betting"
EQUAL, WORSE, UNKNOWN = "equal", "worse", "cannot be told"  # the three verdicts
ALPHA = 0.025  # of each end of a two-sided bound
DELTA = 0.05  # of a one-sided bound
MARGIN = -1.0  # points of accuracy; equal: the lower bound of the difference is above this
MAX_QUESTIONS = 100_000  # a larger number of needed questions is not reported
OWN_SIDE = 0.75  # share of an end's error given to the count that moves it most; the rest goes to the other count
MAX_BET = 0.99  # share of the wealth that one question may cost
_HALVINGS = 60


def kind_of(traces: Floats) -> Kind:
    """The kind of bound for questions with these numbers of traces."""
    return EXACT if (traces == 1).all() else BETTING


def hash_order(names: Sequence[str]) -> Ints:
    """The order in which betting reads these questions: by a hash of their names, whatever order they come in."""
    keys = [blake2b(b"order" + name.encode("utf-8", "surrogatepass")).digest() for name in names]
    return np.array(sorted(range(len(names)), key=keys.__getitem__), dtype=np.int64)


# One proportion, exactly


def binomial_p_value(losses: float, questions: float, epsilon: float) -> float:
    """The chance of at most this many losses if the risk is `epsilon`: the p-value of "the risk is above epsilon"."""
    return 1.0 if losses >= questions else beta_cdf(questions - losses, losses + 1, 1 - epsilon)


@lru_cache(maxsize=1 << 14)
def binomial_upper(losses: float, questions: float, alpha: float = DELTA) -> float:
    """The upper bound of a proportion; it is too low with a chance of at most `alpha`."""
    return 1.0 if losses >= questions else _root(lambda x: beta_cdf(losses + 1, questions - losses, x) < 1 - alpha)


@lru_cache(maxsize=1 << 14)
def binomial_lower(losses: float, questions: float, alpha: float = DELTA) -> float:
    """The lower bound of a proportion; it is too high with a chance of at most `alpha`."""
    return 0.0 if losses <= 0 else _root(lambda x: beta_cdf(losses, questions - losses + 1, x) < alpha)


def questions_for_risk(epsilon: float, losses: int = 0, delta: float = DELTA) -> int:
    """The smallest number of questions with which this many losses prove a risk of at most `epsilon`; 100,000 if it
    is larger."""
    return _smallest(lambda count: binomial_p_value(losses, count, epsilon) <= delta, losses + 1) or MAX_QUESTIONS


def student_t(freedom: int, level: float = 0.95) -> float:
    """The value that Student's t exceeds in size with a chance of 1 - `level`."""
    x = _root(lambda x: beta_cdf(freedom / 2, 0.5, x) < 1 - level)
    return math.sqrt(freedom * (1 - x) / x)


def beta_cdf(a: float, b: float, x: float) -> float:
    """The regularised incomplete beta function, by its continued fraction."""
    if not 0 < x < 1:
        return float(x >= 1)
    scale = a * math.log(x) + b * math.log1p(-x) + math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    if x < (a + 1) / (a + b + 2):  # where the fraction converges fast
        return math.exp(scale) / (a * _fraction(a, b, x))
    return 1 - math.exp(scale) / (b * _fraction(b, a, 1 - x))


def _fraction(a: float, b: float, x: float) -> float:
    """1 + d1 / (1 + d2 / (1 + ...)), from the front: the ratios of successive numerators and denominators."""
    value = above = 1.0
    below = 0.0
    for step in range(1, 100_000):
        half, odd = divmod(step, 2)
        if odd:
            term = -(a + half) * (a + b + half) * x / ((a + step - 1) * (a + step))
        else:
            term = half * (b - half) * x / ((a + step - 1) * (a + step))
        below = 1 / (1 + term * below)
        above = 1 + term / above
        value *= above * below
        if abs(above * below - 1) < 1e-14:
            break
    return value


def _root(is_below: Callable[[float], bool]) -> float:
    """The place in [0, 1] where a monotone condition stops holding."""
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if is_below(middle) else (low, middle)
    return (low + high) / 2


# Means, by betting


def max_log_wealth(values: Floats, mean: Floats, alpha: float = DELTA) -> Floats:
    """How far betting on values above `mean` gets: the largest logarithm of the wealth, at least 0, in each row.

    `values`: (rows, questions) in [0, 1], in an order that was fixed before; `mean`: one for each row. Wealth starts at 1.
    If the true mean is at most `mean`, it exceeds 1 / alpha with a chance of at most alpha.
    """
    bets = np.minimum(_bets(values, alpha), MAX_BET / np.maximum(mean, 1e-12)[:, None])
    best: Floats = np.maximum(log_wealth(values, mean, bets).max(axis=1), 0.0)
    return best


def log_wealth(values: Floats, mean: Floats, bets: Floats) -> Floats:
    """The logarithm of the wealth after each value of each row, at odds that are fair if the mean is `mean`."""
    wealth: Floats = np.cumsum(np.log1p(bets * (values - mean[:, None])), axis=1)
    return wealth


def _bets(values: Floats, alpha: float) -> Floats:
    """The size of each bet, from the variance of the values before it. It suits the number of values and `alpha`."""
    count = np.arange(2, values.shape[1] + 2)
    means = (0.5 + np.cumsum(values, axis=1)) / count
    variances = (0.25 + np.cumsum((values - means) ** 2, axis=1)) / count
    before = np.concatenate([np.full((len(values), 1), 0.25), variances[:, :-1]], axis=1)
    bets: Floats = np.sqrt(2 * math.log(1 / alpha) / (values.shape[1] * before))
    return bets


def betting_lower(values: Floats, alpha: float = DELTA) -> Floats:
    """The lower bound of the mean of each row, (rows, questions) in [0, 1]: the largest mean that betting refutes."""
    low, high = np.zeros(len(values)), values.mean(axis=1)
    for _ in range(_HALVINGS // 2):
        middle = (low + high) / 2
        refuted = max_log_wealth(values, middle, alpha) >= math.log(1 / alpha)
        low, high = np.where(refuted, middle, low), np.where(refuted, high, middle)
    return low


# The risk of one rule


def risk_p_value(losses: Floats, epsilon: float, kind: Kind, delta: float = DELTA) -> float:
    """The p-value of "the risk is above epsilon". `losses`: one for each question, in [0, 1], in hash order."""
    if kind == EXACT:
        return binomial_p_value(float(losses.sum()), len(losses), epsilon)
    return float(np.exp(-max_log_wealth(1 - losses[None], np.array([1 - epsilon]), delta)[0]))


def risk_upper(losses: Floats, kind: Kind, delta: float = DELTA) -> float:
    """The upper bound of the risk, with a confidence of 1 - `delta`."""
    if kind == EXACT:
        return binomial_upper(float(losses.sum()), len(losses), delta)
    return float(1 - betting_lower(1 - losses[None], delta)[0])


def risk_lower(losses: Floats, kind: Kind, delta: float = DELTA) -> float:
    """The lower bound of the risk, with a confidence of 1 - `delta`."""
    if kind == EXACT:
        return binomial_lower(float(losses.sum()), len(losses), delta)
    return float(betting_lower(losses[None], delta)[0])


def questions_to_promise(losses: Floats, epsilon: float, kind: Kind, delta: float = DELTA) -> int | None:
    """The number of questions that would prove a risk of at most `epsilon` if losses went on at the rate seen. None: more
    than 100,000, or the rate seen is not below `epsilon`."""
    rate = float(losses.mean())
    if rate >= epsilon:
        return None

    def proved(count: int) -> bool:
        if kind == EXACT:
            return binomial_p_value(count * rate, count, epsilon) <= delta
        return risk_p_value(np.resize(losses, count), epsilon, kind, delta) <= delta

    return _smallest(proved, 1 if kind == EXACT and not rate else len(losses))


# The difference of two rules on the same questions


def lower_changes(changes: Floats, kind: Kind, alpha: float = ALPHA) -> Floats:
    """The lower bound of the mean change in each row, (settings, questions) in [-1, 1], in hash order."""
    if kind == BETTING:
        return 2 * betting_lower((np.clip(changes, -1, 1) + 1) / 2, alpha) - 1
    count = changes.shape[1]
    pairs = zip((changes > 0).sum(axis=1).tolist(), (changes < 0).sum(axis=1).tolist(), strict=True)
    return np.array([_exact_lower(better, worse, count, alpha) for better, worse in pairs], dtype=np.float64)


def _exact_lower(better: float, worse: float, questions: float, alpha: float) -> float:
    """Gains are at least, and losses at most, what their own exact bounds say; both errors together are `alpha`."""
    gained = binomial_lower(better, questions, (1 - OWN_SIDE) * alpha)
    return gained - binomial_upper(worse, questions, OWN_SIDE * alpha)


def upper_changes(changes: Floats, kind: Kind, alpha: float = ALPHA) -> Floats:
    """The upper bound of the mean change in each row."""
    return -lower_changes(-changes, kind, alpha)


def verdict(bound: Interval, margin: float = MARGIN) -> str:
    """Whether accuracy is equal within the margin, worse, or cannot be told. `bound`: of the difference, in points."""
    low, high = bound
    if low > margin:
        return EQUAL
    return WORSE if high < 0 and low < margin else UNKNOWN


def questions_needed(changes: Floats, kind: Kind, margin: float = MARGIN) -> int | None:
    """The number of questions that would settle the verdict if changes went on at the rates seen: about as many as it takes
    to show equality, if the difference seen is above the margin, or a loss, if it is below. None: more than 100,000.

    `changes`: of each question, in hash order.
    """
    seen = 100 * float(changes.mean())
    if seen == margin:
        return None

    def settled(count: int) -> bool:
        low, high = _ends_at(changes, kind, count)
        return 100 * low > margin if seen > margin else high < 0

    return _smallest(settled, len(changes))


def _ends_at(changes: Floats, kind: Kind, count: int) -> Interval:
    """The bounds for this many questions with the same rates."""
    if kind == BETTING:
        more = np.resize(changes, count)[None]
        return float(lower_changes(more, kind)[0]), float(upper_changes(more, kind)[0])
    better, worse = (count * float(share) for share in ((changes > 0).mean(), (changes < 0).mean()))
    return _exact_lower(better, worse, count, ALPHA), -_exact_lower(worse, better, count, ALPHA)


def _smallest(settled: Callable[[int], bool], start: int) -> int | None:
    """The smallest count from `start` on that settles, found by doubling and halving; None above `MAX_QUESTIONS`, unless
    `start` itself settles."""
    low, high = start - 1, start
    while not settled(high):
        if high >= MAX_QUESTIONS:
            return None
        low, high = high, min(2 * high, MAX_QUESTIONS)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if settled(middle) else (middle, high)
    return high
