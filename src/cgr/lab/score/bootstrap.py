"""Bootstrap intervals over units (questions or seeds). Statistics can share the draws, so differences are paired."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache

import numpy as np

from cgr.lab.types import Floats, Interval

DRAWS = 10_000
LEVEL = 0.95
_MAX_CELLS = 2_000_000  # of a block of counts: bounds the memory for any number of units


def of_sum(values: Floats, *, draws: int = DRAWS, seed: int = 0) -> Interval | None:
    """The interval of the sum of these values over resampled units. None for fewer than two units."""
    if len(values) < 2:
        return None
    return interval(np.concatenate([counts @ values for counts in resampled(len(values), draws, seed)]))


def of_mean(values: Floats, *, draws: int = DRAWS, seed: int = 0) -> Interval | None:
    """The interval of the mean of these values."""
    found = of_sum(values, draws=draws, seed=seed)
    return None if found is None else (found[0] / len(values), found[1] / len(values))


def of_ratio(above: Floats, below: Floats, *, draws: int = DRAWS, seed: int = 0) -> Interval | None:
    """The interval of sum(above) / sum(below) over resampled units. None if a unit has nothing below."""
    if len(below) < 2 or not (below > 0).all():
        return None
    return interval(np.concatenate([(counts @ above) / (counts @ below) for counts in resampled(len(below), draws, seed)]))


def of_each(units: int, statistics: Callable[[Floats], Floats], *, draws: int = DRAWS, seed: int = 0) -> list[Interval]:
    """The intervals of several statistics on the same draws. `statistics` maps the counts of each unit, (draws, units), to
    the values, (draws, statistics)."""
    values = np.concatenate([statistics(counts) for counts in resampled(units, draws, seed)])
    return intervals(np.ascontiguousarray(values.T))


def interval(values: Floats) -> Interval:
    """The middle 95% of these values."""
    return intervals(values[None])[0]


def intervals(rows: Floats) -> list[Interval]:
    """The middle 95% of each row."""
    low, high = np.quantile(rows, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=-1)
    return list(zip(low.tolist(), high.tolist(), strict=True))


def resampled(units: int, draws: int = DRAWS, seed: int = 0) -> Iterable[Floats]:
    """Blocks of draws, (draws, units): how often each unit was drawn. Always the same; small ones are kept."""
    return _kept(units, draws, seed) if units * draws <= _MAX_CELLS else _blocks(units, draws, seed)


@lru_cache(maxsize=4)
def _kept(units: int, draws: int, seed: int) -> tuple[Floats, ...]:
    return tuple(_blocks(units, draws, seed))


def _blocks(units: int, draws: int, seed: int) -> Iterator[Floats]:
    rng = np.random.default_rng(seed)
    block = max(1, min(draws, _MAX_CELLS // units))
    for begin in range(0, draws, block):
        rows = min(block, draws - begin)
        drawn = rng.integers(units, size=(rows, units)) + units * np.arange(rows)[:, None]
        yield np.bincount(drawn.ravel(), minlength=rows * units).reshape(rows, units).astype(np.float64)
