"""A confidence sequence for the risk of losses that come one by one: its bounds hold at all times together.

For "the risk is at most m", a bettor puts money on losses, at odds that are fair if the risk is m. It starts with 1 and
never adds any. If the risk never exceeds m, the chance that it ever has 1 / delta is at most delta (Ville). So the risk was
above m at some time, with a confidence of 1 - delta, once it has that much, however often one looks. The money is split
over several bets, each the best one for another true risk, and over several starting times: what is bet later has lost
nothing before a change. With losses of 0 or 1, a bet multiplies the money as a likelihood ratio does: by
1 + bet * (loss - m), as in `cgr.lab.score.bounds`. The bets there suit a known number of questions; these suit any.

Losses are counted in blocks of `BLOCK`, in the order in which they were drawn. This module needs no numpy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache

BLOCK = 64  # losses between two starting times
RATIOS = (1.25, 1.5, 2.0, 3.0, 5.0, 10.0)  # true risks that the bets suit, in units of the risk that is tested
NO_LOSS = math.inf  # for the upper bound, also a risk of 0
LARGEST = 1e100  # money beyond this is given away, which no bettor gains by
_HALVINGS = 40
Interval = tuple[float, float]


def unspent(block: int) -> float:
    """The share of the money that is not bet before this block. Half is bet from the start on, and the rest bit by bit."""
    return 1 / (1 + math.log2(1 + block))


def factors(mean: float, ratio: float) -> Interval:
    """What a bet makes of 1 after a loss and after none. The bet suits the risk `ratio` times `mean`, at most half way from
    `mean` to 1: it is (risk - mean) / (mean * (1 - mean)), and the factors are those of a likelihood ratio."""
    risk = min(ratio * mean, (1 + mean) / 2)
    return risk / mean, (1 - risk) / (1 - mean)


def evidence_above(blocks: Sequence[int], count: int, mean: float) -> float:
    """The money of the bettor against "the risk is at most `mean`". `blocks`: the losses in each block of the `count` draws
    so far."""
    if not count:
        return 1.0
    each = [factors(mean, ratio) for ratio in RATIOS]
    grown: dict[tuple[int, int], list[float]] = {}  # most blocks have no loss or one
    money = [0.0] * len(each)
    for number, losses in enumerate(blocks):
        others = min(BLOCK, count - number * BLOCK) - losses
        if (losses, others) not in grown:
            grown[losses, others] = [_power(lost, losses) * _power(kept, others) for lost, kept in each]
        start = unspent(number) - unspent(number + 1)
        money = [min((one + start) * by, LARGEST) for one, by in zip(money, grown[losses, others], strict=True)]
    return math.fsum(money) / len(money) + unspent(len(blocks))


def evidence_below(losses: int, count: int, mean: float) -> float:
    """The money of the bettor against "the risk is at least `mean`". All of it is bet from the start on."""
    each = [factors(mean, 1 / ratio) for ratio in (*RATIOS, NO_LOSS)]
    return math.fsum(_power(lost, losses) * _power(kept, count - losses) for lost, kept in each) / len(each)


def _power(factor: float, times: int) -> float:
    """A power, cut off where a float ends."""
    if not times or not factor:
        return float(not times)
    return math.exp(min(times * math.log(factor), math.log(LARGEST)))


@lru_cache(maxsize=8)
def risk_bounds(blocks: tuple[int, ...], count: int, delta: float) -> Interval:
    """The lower and the upper bound of the risk after these draws, each with a confidence of 1 - `delta` at all times
    together."""
    losses = sum(blocks)
    low, _ = _edge(lambda mean: evidence_above(blocks, count, mean) >= 1 / delta)
    _, high = _edge(lambda mean: evidence_below(losses, count, mean) < 1 / delta)
    return low, high


def _edge(holds: Callable[[float], bool]) -> Interval:
    """Where in [0, 1] a condition that holds on the left stops holding, from both sides."""
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low, high


def with_draw(blocks: Sequence[int], count: int, loss: bool) -> tuple[int, ...]:
    """The losses in each block after one more draw."""
    *before, last = blocks if count % BLOCK else (*blocks, 0)
    return (*before, last + loss)
