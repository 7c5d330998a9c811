"""Regressions for fitted rules: isotonic, linear and logistic, with plain sequences in and tuples out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cgr.lab.types import Floats

RIDGE = 1.0
NEWTON_STEPS = 100


def isotonic(values: Sequence[float], weights: Sequence[float]) -> tuple[float, ...]:
    """The closest values that never fall: neighbours that fall are replaced by their weighted mean."""
    blocks: list[tuple[float, float, int]] = []
    for value, weight in zip(values, weights, strict=True):
        blocks.append((value, weight, 1))
        while len(blocks) > 1 and blocks[-2][0] >= blocks[-1][0]:
            (last, last_weight, last_count), (first, first_weight, first_count) = blocks.pop(), blocks.pop()
            total = first_weight + last_weight
            blocks.append(((first * first_weight + last * last_weight) / total, total, first_count + last_count))
    return tuple(value for value, _, count in blocks for _ in range(count))


def linear(features: Sequence[Sequence[float]], values: Sequence[float], ridge: float = RIDGE) -> tuple[float, ...]:
    """Weights by least squares with a ridge penalty on the standardised features. The first feature must be constant."""
    scaled, mean, deviation = _standardised(features)
    hessian = scaled.T @ scaled + ridge * np.eye(scaled.shape[1])
    return _unscaled(np.linalg.solve(hessian, scaled.T @ np.array(values, dtype=np.float64)), mean, deviation)


def logistic(features: Sequence[Sequence[float]], good: Sequence[bool], ridge: float = RIDGE) -> tuple[float, ...]:
    """Weights of a logistic regression by Newton's method, with the same penalty."""
    scaled, mean, deviation = _standardised(features)
    target, weights = np.array(good, dtype=np.float64), np.zeros(scaled.shape[1])
    for _ in range(NEWTON_STEPS):
        chance = 1 / (1 + np.exp(-np.clip(scaled @ weights, -700, 700)))
        gradient = scaled.T @ (target - chance) - ridge * weights
        hessian = (scaled * (chance * (1 - chance))[:, None]).T @ scaled + ridge * np.eye(scaled.shape[1])
        step = np.linalg.solve(hessian, gradient)
        weights += step
        if np.abs(step).max() < 1e-10:
            break
    return _unscaled(weights, mean, deviation)


def _standardised(features: Sequence[Sequence[float]]) -> tuple[Floats, Floats, Floats]:
    """The features with mean 0 and deviation 1, except the constant; their means and deviations."""
    table = np.array(features, dtype=np.float64)
    mean, deviation = table.mean(axis=0), table.std(axis=0)
    mean[0], deviation[deviation == 0] = 0.0, 1.0
    return (table - mean) / deviation, mean, deviation


def _unscaled(weights: NDArray[Any], mean: Floats, deviation: Floats) -> tuple[float, ...]:
    """The weights for features that are not standardised."""
    plain = weights / deviation
    plain[0] -= float((plain * mean).sum())
    return tuple(map(float, plain))
