"""Bounds at the edges: closed forms, equality with a threshold, values by hand, and the smallest numbers of questions."""

from __future__ import annotations

import math

import numpy as np
import pytest

from cgr.lab.score.bounds import (
    BETTING,
    EQUAL,
    EXACT,
    MAX_QUESTIONS,
    UNKNOWN,
    Kind,
    betting_lower,
    binomial_p_value,
    hash_order,
    lower_changes,
    max_log_wealth,
    questions_for_risk,
    questions_needed,
    questions_to_promise,
    risk_lower,
    risk_p_value,
    risk_upper,
    student_t,
    upper_changes,
    verdict,
)
from cgr.lab.types import Floats

ALPHA_OF_TWO = math.exp(-2)  # log(1 / alpha) is 2
SECOND = math.sqrt(1.6)  # the second of 16 bets at this alpha, after a 0 or a 1; the first is 1


def with_ones(ones: int, count: int) -> Floats:
    return np.array([1.0] * ones + [0.0] * (count - ones))


def in_between(count: int, seed: int = 0) -> Floats:
    """Losses as means over four traces."""
    return np.random.default_rng(seed).binomial(4, 0.1, count) / 4


# The order of questions


def test_the_order_of_questions_stays_the_same_in_all_versions() -> None:
    """Bounds by betting depend on it, so that another order would change published numbers."""
    assert hash_order([f"q{number}" for number in range(10)]).tolist() == [6, 7, 9, 5, 1, 3, 8, 2, 4, 0]


def test_a_name_with_half_of_a_surrogate_pair_has_a_place() -> None:
    assert sorted(hash_order(["\ud800", "a", "\udc00"]).tolist()) == [0, 1, 2]


# One proportion


def test_no_loss_is_the_default_of_the_questions_for_a_risk() -> None:
    assert questions_for_risk(0.05) == 59


@pytest.mark.parametrize(("losses", "count"), [(0, 1), (0, 7), (2, 3), (2, 9)])
def test_a_p_value_of_exactly_delta_proves_a_risk(losses: int, count: int) -> None:
    assert questions_for_risk(0.3, losses, binomial_p_value(losses, count, 0.3)) == count


def test_at_most_the_largest_number_of_questions_is_reported() -> None:
    assert questions_for_risk(1e-6) == MAX_QUESTIONS
    at_most = 1 - 0.05 ** (1 / 99_990)
    assert questions_for_risk(at_most) == pytest.approx(99_990, abs=1)
    assert questions_for_risk(1 - 0.05 ** (1 / 101_000)) == MAX_QUESTIONS


@pytest.mark.parametrize(
    ("level", "value"), [(0.5, 1.0), (0.8, math.tan(0.4 * math.pi)), (0.95, math.tan(0.475 * math.pi))]
)
def test_student_t_with_one_degree_of_freedom_is_a_tangent(level: float, value: float) -> None:
    assert student_t(1, level) == pytest.approx(value, rel=1e-9)


# Betting


@pytest.mark.parametrize(
    ("first", "mean", "wealth"),
    [
        ([], 0.25, 1.0),
        ([1], 0.25, 1.75),
        ([1, 1], 0.25, 1.75 * (1 + 0.75 * SECOND)),
        ([0, 1], 0.25, 0.75 * (1 + 0.75 * SECOND)),
        ([1, 1], 0.9, 1.1 * (1 + 0.1 * 0.99 / 0.9)),  # no bet is larger than 0.99 / mean
        ([1, 1], 0.0, 2 * (1 + SECOND)),
    ],
)
def test_the_largest_wealth_by_hand(first: list[float], mean: float, wealth: float) -> None:
    """These values, and then zeros, at which betting on ones gains nothing."""
    values = np.array([*first, *[0.0] * (16 - len(first))])
    found = max_log_wealth(values[None], np.array([mean]), ALPHA_OF_TWO)
    assert found.tolist() == pytest.approx([math.log(wealth)])
    assert risk_p_value(1 - values, 1 - mean, BETTING, ALPHA_OF_TWO) == pytest.approx(1 / wealth)


def test_each_row_has_its_own_lower_bound() -> None:
    rows = np.array([with_ones(0, 100), with_ones(40, 100)[::-1], with_ones(100, 100)])
    together = betting_lower(rows)
    assert together.tolist() == [float(betting_lower(row[None])[0]) for row in rows]
    assert together[0] == 0
    assert 0.05 < together[1] < 0.4
    assert together[2] > 0.9


@pytest.mark.parametrize("alpha", [0.01, 0.05, 0.2])
def test_the_lower_bound_is_the_largest_mean_that_is_refuted(alpha: float) -> None:
    rows = np.array([in_between(60, seed) for seed in range(8)])
    bound, enough = betting_lower(rows, alpha), math.log(1 / alpha)
    assert (max_log_wealth(rows, bound, alpha) >= enough).all()
    assert (max_log_wealth(rows, bound + 1e-8, alpha) < enough).all()


# The risk of one rule


@pytest.mark.parametrize("delta", [0.01, 0.05, 0.2])
def test_bounds_of_a_risk_in_closed_form(delta: float) -> None:
    assert risk_upper(with_ones(0, 20), EXACT, delta) == pytest.approx(1 - delta ** (1 / 20))
    assert risk_lower(with_ones(20, 20), EXACT, delta) == pytest.approx(delta ** (1 / 20))
    assert risk_lower(with_ones(1, 20), EXACT, delta) == pytest.approx(1 - (1 - delta) ** (1 / 20))
    assert (risk_lower(with_ones(0, 20), EXACT, delta), risk_upper(with_ones(20, 20), EXACT, delta)) == (0, 1)


@pytest.mark.parametrize("delta", [0.01, 0.05, 0.2])
@pytest.mark.parametrize(("losses", "kind"), [(with_ones(3, 50), EXACT), (in_between(80), BETTING)])
def test_the_lower_bound_of_losses_mirrors_the_upper_bound_of_the_others(losses: Floats, kind: Kind, delta: float) -> None:
    low, high = risk_lower(losses, kind, delta), risk_upper(losses, kind, delta)
    assert low == pytest.approx(1 - risk_upper(1 - losses, kind, delta))
    assert high == pytest.approx(1 - risk_lower(1 - losses, kind, delta))
    assert risk_p_value(losses, high + 1e-6, kind, delta) <= delta < risk_p_value(losses, high - 1e-6, kind, delta)


@pytest.mark.parametrize(
    ("losses", "epsilon", "kind", "needed"),
    [
        (with_ones(0, 500), 0.01, EXACT, 299),  # fewer would have been enough
        (with_ones(0, 3), 0.01, EXACT, 299),
        (with_ones(0, 3), 0.96, EXACT, 1),
        (with_ones(1, 1000), 0.05, EXACT, 1000),  # with losses, only a larger number is looked for
        (with_ones(0, 500), 0.05, BETTING, 500),
        (with_ones(1, 100), 0.01, EXACT, None),
        (with_ones(1, 100), 0.01, BETTING, None),
        (with_ones(0, 10), 1e-6, EXACT, None),
    ],
)
def test_the_questions_of_a_promise(losses: Floats, epsilon: float, kind: Kind, needed: int | None) -> None:
    assert questions_to_promise(losses, epsilon, kind) == needed


def test_losses_at_the_rate_that_is_allowed_promise_nothing() -> None:
    """One loss in two questions has a p-value of 3/4 for a risk of one half."""
    assert questions_to_promise(with_ones(1, 2), 0.5, EXACT, 0.8) is None
    assert questions_to_promise(with_ones(1, 2), 0.51, EXACT, 0.8) == 2


def test_a_p_value_of_exactly_delta_is_a_promise() -> None:
    assert questions_to_promise(with_ones(0, 3), 0.3, EXACT, binomial_p_value(0, 7, 0.3)) == 7


@pytest.mark.parametrize("delta", [0.01, 0.2])
def test_the_questions_of_a_promise_by_betting_are_the_fewest(delta: float) -> None:
    losses = in_between(30)
    epsilon = float(losses.mean()) + 0.02
    needed = questions_to_promise(losses, epsilon, BETTING, delta)
    assert needed is not None
    assert needed > 30
    enough, fewer = (risk_p_value(np.resize(losses, count), epsilon, BETTING, delta) for count in (needed, needed - 1))
    assert enough <= delta < fewer


# The difference of two rules


@pytest.mark.parametrize("alpha", [0.025, 0.2])
def test_bounds_of_a_difference_in_closed_form(alpha: float) -> None:
    """Three quarters of the error go to the count that moves the end most."""
    changes = np.array([with_ones(10, 10), with_ones(0, 10), -with_ones(10, 10)])
    none, every = 1 - (0.75 * alpha) ** 0.1, (alpha / 4) ** 0.1
    assert lower_changes(changes, EXACT, alpha).tolist() == pytest.approx([every - none, -none, -1])
    assert upper_changes(changes, EXACT, alpha).tolist() == pytest.approx([1, none, none - every])
    if alpha == 0.025:
        assert lower_changes(changes, EXACT).tolist() == lower_changes(changes, EXACT, alpha).tolist()


def test_a_change_beyond_1_counts_as_1() -> None:
    """A mean over traces can exceed it by a rounding error."""
    wild, tame = (np.array([[size, -size, 0.0, size, size, 0.5] * 5]) for size in (1.5, 1.0))
    assert lower_changes(wild, BETTING).tolist() == lower_changes(tame, BETTING).tolist()
    assert lower_changes(-wild, BETTING).tolist() == lower_changes(-tame, BETTING).tolist()


def test_betting_on_differences_is_betting_on_their_place_between_the_extremes() -> None:
    changes = np.array([in_between(60, 1) - in_between(60, 2)])
    low, high = (bound(changes, BETTING, 0.1)[0] for bound in (lower_changes, upper_changes))
    assert low == pytest.approx(2 * risk_lower((changes[0] + 1) / 2, BETTING, 0.1) - 1)
    assert high == pytest.approx(2 * risk_upper((changes[0] + 1) / 2, BETTING, 0.1) - 1)


@pytest.mark.parametrize(("bound", "margin", "said"), [((-1.0, -0.5), -1.0, UNKNOWN), ((-1.5, 1.0), -2.0, EQUAL)])
def test_a_verdict_at_its_margin(bound: tuple[float, float], margin: float, said: str) -> None:
    assert verdict(bound, margin) == said


def test_the_questions_needed_in_closed_form() -> None:
    """Without a change, the lower bound is 0.01875 ** (1 / questions) - 1, which is above -1% from 396 on."""
    assert questions_needed(np.zeros(100), EXACT) == math.ceil(math.log(0.01875) / math.log(0.99)) == 396
    assert questions_needed(np.zeros(100), EXACT, -2.0) == math.ceil(math.log(0.01875) / math.log(0.98)) == 197
    assert questions_needed(np.zeros(500), EXACT) == 500


def test_a_bound_at_the_margin_settles_nothing() -> None:
    margin = 100 * float(lower_changes(np.zeros((1, 200)), EXACT)[0])
    assert questions_needed(np.zeros(100), EXACT, margin) == 201


@pytest.mark.parametrize(("better", "worse"), [(0, 0), (2, 0), (0, 3), (0, 4)])
def test_the_questions_needed_by_betting_are_the_fewest(better: int, worse: int) -> None:
    seen = np.concatenate([with_ones(better, better), -with_ones(worse, worse), np.zeros(100 - better - worse)])
    seen = seen[hash_order([str(number) for number in range(100)])]
    needed = questions_needed(seen, BETTING)
    assert needed is not None
    assert needed > 100
    for count, settled in ((needed, True), (needed - 1, False)):
        more = np.resize(seen, (1, count))
        low, high = lower_changes(more, BETTING)[0], upper_changes(more, BETTING)[0]
        assert (high < 0 if worse else 100 * low > -1) == settled


def test_the_questions_that_show_a_loss_in_closed_form() -> None:
    """If every answer becomes wrong, the upper bound is 1 - 0.01875 ** (1 / questions) - 0.00625 ** (1 / questions)."""
    assert 0.01875 ** (1 / 6) + 0.00625 ** (1 / 6) < 1 < 0.01875 ** (1 / 7) + 0.00625 ** (1 / 7)
    assert [questions_needed(-np.ones(count), EXACT) for count in (2, 3, 7, 8)] == [7, 7, 7, 8]


@pytest.mark.parametrize("start", [100, 3125, 99_000])
def test_no_number_above_the_largest_is_reported(start: int) -> None:
    """From any number of questions: doubling may step over the largest number that is reported, and 101,000 is above it."""
    margin = -100 * (1 - 0.01875 ** (1 / 101_000))
    assert questions_needed(np.zeros(start), EXACT, margin) is None
    margin = -100 * (1 - 0.01875 ** (1 / 99_500.5))
    assert questions_needed(np.zeros(start), EXACT, margin) == 99_501
    margin = -100 * (1 - 0.01875 ** (1 / 99_999.5))
    assert questions_needed(np.zeros(start), EXACT, margin) == 100_000
