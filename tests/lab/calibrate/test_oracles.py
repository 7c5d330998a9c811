"""The p-values are those of scipy's exact binomial, and of MAPIE where MAPIE is right. The numbers below were computed by
scipy 1.17.1 and MAPIE 1.6.0, which the project does not install. Where they are installed (`pip install mapie` in an
environment with the project), the last two tests ask them again, over more cases."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from cgr.lab.calibrate.losses import MeanLosses
from cgr.lab.score.bounds import EXACT, binomial_p_value

# losses, questions, epsilon, scipy.stats.binom.cdf
BY_SCIPY = [
    (0, 299, 0.01, 0.049536256637662465),
    (0, 500, 0.01, 0.0065704830424146285),
    (2, 500, 0.01, 0.12338577435358128),
    (3, 773, 0.01, 0.04999477164638942),
    (5, 208, 0.05, 0.04922519579920876),
    (40, 1000, 0.05, 0.080636573256691),
    (1, 30, 0.2, 0.010522490333925749),
]

# losses, questions, epsilon, mapie.risk_control.methods.compute_hoeffding_bentkus_p_value(..., binary=True)
BY_MAPIE = [
    (0, 500, 0.01, 0.0065704830424144186),
    (1, 500, 0.01, 0.03975474083238734),
    (4, 500, 0.05, 1.6830155051223479e-07),
    (4, 1024, 0.01, 0.024516861690893885),
    (9, 1024, 0.05, 1.8878397632989183e-13),
    (1, 64, 0.05, 0.16392123971171735),
    (0, 64, 0.05, 0.03752413921111613),
]


@pytest.mark.parametrize(("losses", "questions", "epsilon", "expected"), BY_SCIPY + BY_MAPIE)
def test_exact_p_values(losses: int, questions: int, epsilon: float, expected: float) -> None:
    values = np.zeros(questions)
    values[:losses] = 1
    assert MeanLosses(values, EXACT).p_value(epsilon, 0.05) == pytest.approx(expected, rel=1e-10)


def test_scipy_agrees() -> None:
    stats = pytest.importorskip("scipy.stats")
    for questions, losses, epsilon in itertools.product((2, 59, 299, 2000), (0, 1, 5, 40), (0.005, 0.01, 0.05, 0.3)):
        if losses <= questions:
            expected = stats.binom.cdf(losses, questions, epsilon)
            assert binomial_p_value(losses, questions, epsilon) == pytest.approx(expected, rel=1e-9, abs=1e-14)


def test_mapie_agrees_where_it_counts_the_losses_right() -> None:
    """MAPIE counts by ceil(n * mean), which rounding can make one too many, and takes Hoeffding's bound where that is
    smaller than the binomial, which it never is by more than rounding."""
    methods = pytest.importorskip("mapie.risk_control.methods")
    checked = 0
    for questions, losses, epsilon in itertools.product((64, 500, 1024), (0, 1, 4, 9), (0.01, 0.05)):
        rate = losses / questions
        if np.ceil(questions * rate) != losses:
            continue
        (found,) = methods.compute_hoeffding_bentkus_p_value(np.array([rate]), questions, epsilon, binary=True).ravel()
        ours = binomial_p_value(losses, questions, epsilon)
        assert found <= ours * (1 + 1e-9)
        if found < ours * (1 - 1e-9):  # the loss is above epsilon, where both are far from any delta
            assert rate >= epsilon
        checked += 1
    assert checked > 15
