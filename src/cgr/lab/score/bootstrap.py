"""Paired bootstrap intervals: the same questions (or seeds) are drawn for both sides, so only the difference varies."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache

import numpy as np

from cgr.lab.types import Floats
from cgr.lab.types import Interval as Interval  # noqa: PLC0414, exported until all import it from `types`

DRAWS = 10_000
LEVEL = 0.95
_CELLS = 2_000_000  # of a block of drawn counts: keeps memory flat however many units there are


def of_sum(values: Floats, *, draws: int = DRAWS, seed: int = 0) -> Interval | None:
    """The interval of the sum of these values over units drawn anew, as many as there are. One unit tells nothing."""
    if len(values) < 2:
        return None
    sums = np.concatenate([counts @ values for counts in _drawn(len(values), draws, seed)])
    return _middle(sums)


def of_mean(values: Floats, *, draws: int = DRAWS, seed: int = 0) -> Interval | None:
    """The interval of the mean of these values."""
    return scaled(of_sum(values, draws=draws, seed=seed), 1 / max(len(values), 1))


def of_ratio(above: Floats, below: Floats, *, draws: int = DRAWS, seed: int = 0) -> Interval | None:
    """The interval of sum(above) / sum(below), both drawn together."""
    if len(below) < 2 or not (below > 0).all():
        return None
    ratios = [(counts @ above) / (counts @ below) for counts in _drawn(len(below), draws, seed)]
    return _middle(np.concatenate(ratios))


def of_each(units: int, statistics: Callable[[Floats], Floats], *, draws: int = DRAWS, seed: int = 0) -> list[Interval]:
    """The intervals of several statistics at once, each computed from how often every unit came up: (draws, units) counts
    go in, (draws, statistics) come out; all of them see the same draws."""
    values = np.concatenate([statistics(counts) for counts in _drawn(units, draws, seed)])
    return [_middle(one) for one in np.ascontiguousarray(values.T)]


def scaled(interval: Interval | None, factor: float) -> Interval | None:
    return None if interval is None else (interval[0] * factor, interval[1] * factor)


def _drawn(units: int, draws: int, seed: int) -> Iterable[Floats]:
    """Blocks of draws: how often each unit came up in each. Few enough are kept: every threshold asks for the same."""
    return _kept(units, draws, seed) if units * draws <= _CELLS else _blocks(units, draws, seed)


@lru_cache(maxsize=4)
def _kept(units: int, draws: int, seed: int) -> tuple[Floats, ...]:
    return tuple(_blocks(units, draws, seed))


def _blocks(units: int, draws: int, seed: int) -> Iterator[Floats]:
    rng = np.random.default_rng(seed)
    block = max(1, min(draws, _CELLS // units))
    for begin in range(0, draws, block):
        rows = min(block, draws - begin)
        drawn = rng.integers(units, size=(rows, units)) + units * np.arange(rows)[:, None]
        yield np.bincount(drawn.ravel(), minlength=rows * units).reshape(rows, units).astype(np.float64)


def _middle(values: Floats) -> Interval:
    low, high = np.quantile(values, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)
