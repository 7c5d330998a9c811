"""The draws of bootstrap intervals: known intervals of few units, seeds, and what is kept in memory."""

from __future__ import annotations

import numpy as np
import pytest

from cgr.lab.score import bootstrap as intervals
from cgr.lab.types import Floats

VALUES = np.random.default_rng(2).normal(1, 1, 12)


def test_two_units_have_an_interval() -> None:
    """A quarter of the draws has the first unit twice, and a quarter the second."""
    assert intervals.of_sum(np.array([0.0, 1.0])) == (0, 2)
    assert intervals.of_mean(np.array([0.0, 1.0])) == (0, 1)
    assert intervals.of_ratio(np.array([1.0, 3.0]), np.array([1.0, 1.0])) == (1, 3)


def test_an_interval_is_the_middle_95_percent() -> None:
    values = np.arange(10_001.0)
    assert intervals.interval(values) == pytest.approx((250, 9750))
    assert intervals.intervals(np.stack([values, -values])) == [
        pytest.approx((250, 9750)),
        pytest.approx((-9750, -250)),
    ]


@pytest.mark.parametrize("draws", [50, 400])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_all_statistics_have_the_same_draws_for_a_seed(draws: int, seed: int) -> None:
    def total(counts: Floats) -> Floats:
        return (counts @ VALUES)[:, None]

    wanted = intervals.of_sum(VALUES, draws=draws, seed=seed)
    assert wanted is not None
    mean = pytest.approx((wanted[0] / 12, wanted[1] / 12))
    assert intervals.of_each(12, total, draws=draws, seed=seed) == [pytest.approx(wanted)]
    assert intervals.of_mean(VALUES, draws=draws, seed=seed) == mean
    assert intervals.of_ratio(VALUES, np.ones(12), draws=draws, seed=seed) == mean


def test_the_defaults_are_seed_0_and_ten_thousand_draws() -> None:
    (block,) = intervals.resampled(12)
    (same,) = intervals.resampled(12, 10_000, 0)
    assert block.shape == (10_000, 12)
    assert (block == same).all()
    wanted = intervals.of_mean(VALUES, draws=10_000, seed=0)
    assert intervals.of_mean(VALUES) == wanted
    assert intervals.of_ratio(VALUES, np.ones(12)) == pytest.approx(wanted)
    assert intervals.of_each(12, lambda counts: (counts @ VALUES)[:, None] / 12) == [pytest.approx(wanted)]


def test_another_seed_makes_other_draws() -> None:
    (one,), (other,) = (intervals.resampled(12, 100, seed) for seed in (1, 2))
    assert (one != other).any()
    found = [intervals.of_sum(VALUES, draws=100, seed=seed) for seed in range(5)]
    assert len({*found}) == 5


def test_each_draw_has_as_many_units_as_there_are() -> None:
    (block,) = intervals.resampled(7, 300, 4)
    assert block.dtype == np.float64
    assert (block.sum(axis=1) == 7).all()
    assert block.sum(axis=0) == pytest.approx(np.full(7, 300), rel=0.2)


def test_draws_of_up_to_two_million_cells_are_kept() -> None:
    assert intervals.resampled(200) is intervals.resampled(200)
    assert intervals.resampled(2_000_000, 1) is intervals.resampled(2_000_000, 1)
    assert intervals.resampled(2_000_001, 1) is not intervals.resampled(2_000_001, 1)
    assert intervals.resampled(200, 10_001) is not intervals.resampled(200, 10_001)


def test_blocks_have_at_most_two_million_cells_and_at_least_one_draw() -> None:
    shapes = [block.shape for block in intervals.resampled(300_000, 14)]
    assert shapes == [(6, 300_000), (6, 300_000), (2, 300_000)]
    assert next(iter(intervals.resampled(2_000_001, 2))).shape == (1, 2_000_001)
