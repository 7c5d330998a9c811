"""Bootstrap intervals: where they lie, when there is none, and that draws are shared."""

from __future__ import annotations

import numpy as np
import pytest

from cgr.lab.score import bootstrap as intervals
from cgr.lab.types import Floats


def test_an_interval_holds_what_it_is_of_and_is_the_same_every_time() -> None:
    values = np.random.default_rng(1).normal(0.3, 1, 400)
    low, high = intervals.of_mean(values) or (0, 0)
    assert low < values.mean() < high
    wide = 1.96 * values.std() / 20
    assert (high - low) / 2 == pytest.approx(wide, rel=0.1)
    assert intervals.of_mean(values) == (low, high)
    assert intervals.of_sum(values) == pytest.approx((400 * low, 400 * high))


def test_many_units_are_drawn_in_blocks() -> None:
    values = np.random.default_rng(1).normal(0, 1, 3000)
    low, high = intervals.of_mean(values, draws=2000) or (0, 0)
    assert (high - low) / 2 == pytest.approx(1.96 * values.std() / 3000**0.5, rel=0.15)


def test_an_interval_of_nothing_that_varies_is_a_point() -> None:
    assert intervals.of_sum(np.zeros(5)) == (0, 0)
    assert intervals.of_mean(np.full(5, 0.5)) == (0.5, 0.5)
    assert intervals.of_ratio(np.array([1.0, 2, 3]), np.array([2.0, 4, 6])) == (0.5, 0.5)


@pytest.mark.parametrize("values", [np.zeros(0), np.ones(1)])
def test_one_unit_tells_nothing_of_others(values: Floats) -> None:
    assert intervals.of_sum(values) is None
    assert intervals.of_mean(values) is None
    assert intervals.of_ratio(values, values) is None


def test_a_unit_with_nothing_below_has_no_ratio() -> None:
    """A draw of this unit alone would be 0 / 0."""
    assert intervals.of_ratio(np.array([0.0, 1.0, 2.0]), np.array([0.0, 2.0, 4.0])) is None
    assert intervals.of_ratio(np.array([0.0, 1.0, 2.0]), np.array([1.0, 2.0, 4.0])) is not None
    assert intervals.of_ratio(np.array([1.0, 1.0]), np.array([-1.0, 2.0])) is None


def test_statistics_share_their_draws() -> None:
    values = np.random.default_rng(0).normal(0, 1, 30)

    def statistics(counts: Floats) -> Floats:
        return np.stack([counts @ values, 0 * (counts @ values)], axis=1)

    (low, high), difference = intervals.of_each(30, statistics)
    assert (low, high) == pytest.approx(intervals.of_sum(values))
    assert difference == (0, 0)
