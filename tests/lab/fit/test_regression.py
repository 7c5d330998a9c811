"""Regressions find the weights that made the data."""

from __future__ import annotations

import numpy as np
import pytest

from cgr.lab.fit import regression


def test_logistic_regression_finds_the_weights() -> None:
    rng = np.random.default_rng(0)
    features = np.column_stack([np.ones(20_000), rng.normal(5, 2, 20_000), rng.normal(size=20_000)])
    weights = np.array([-2.0, 0.5, -1.0])
    good = rng.random(20_000) < 1 / (1 + np.exp(-features @ weights))
    assert regression.logistic(features.tolist(), good.tolist(), ridge=0.01) == pytest.approx(weights, abs=0.1)


def test_logistic_regression_of_what_is_always_so() -> None:
    """Separable, or one feature that never changes: held back by the ridge, and finite."""
    features = np.column_stack([np.ones(50), np.zeros(50), np.arange(50.0)])
    weights = regression.logistic(features.tolist(), (np.arange(50) > 20).tolist())
    assert np.isfinite(weights).all()
    assert weights[2] > 0


def test_linear_regression_finds_the_weights() -> None:
    rng = np.random.default_rng(0)
    features = np.column_stack([np.ones(500), rng.normal(5, 2, 500), rng.normal(size=500)])
    weights = np.array([-2.0, 0.5, -1.0])
    assert regression.linear(features.tolist(), (features @ weights).tolist(), ridge=1e-9) == pytest.approx(weights)


@pytest.mark.parametrize(
    ("values", "weights", "expected"),
    [
        ((1, 2, 3), (1, 1, 1), (1, 2, 3)),
        ((1, 3, 2), (1, 1, 1), (1, 2.5, 2.5)),
        ((1, 3, 2), (1, 1, 3), (1, 2.25, 2.25)),
        ((3, 2, 1), (1, 1, 1), (2, 2, 2)),
        ((), (), ()),
    ],
)
def test_isotonic(values: tuple[float, ...], weights: tuple[float, ...], expected: tuple[float, ...]) -> None:
    assert regression.isotonic(values, weights) == pytest.approx(expected)
