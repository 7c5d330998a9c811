"""Bounds that keep their width when nothing changed: exact values, the tables of the definition, power and coverage."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cgr.lab.score import bootstrap
from cgr.lab.score.bounds import (
    BETTING,
    EQUAL,
    EXACT,
    UNKNOWN,
    WORSE,
    Kind,
    beta_cdf,
    betting_lower,
    binomial_lower,
    binomial_p_value,
    binomial_upper,
    hash_order,
    kind_of,
    lower_changes,
    max_log_wealth,
    questions_for_risk,
    questions_needed,
    risk_p_value,
    risk_upper,
    student_t,
    upper_changes,
    verdict,
)
from cgr.lab.types import Floats


def tail(most: int, count: int, chance: float) -> float:
    """The chance of at most `most` of `count`, term by term."""
    return math.fsum(math.comb(count, k) * chance**k * (1 - chance) ** (count - k) for k in range(most + 1))


# One proportion


@given(st.integers(1, 300), st.data(), st.floats(0.001, 0.999))
def test_a_p_value_is_a_sum_of_binomial_terms(count: int, data: st.DataObject, chance: float) -> None:
    losses = data.draw(st.integers(0, count))
    assert binomial_p_value(losses, count, chance) == pytest.approx(tail(losses, count, chance), rel=1e-9, abs=1e-13)


@given(st.integers(1, 200), st.data(), st.sampled_from((0.01, 0.025, 0.05, 0.2)))
def test_a_bound_is_where_the_p_value_is_alpha(count: int, data: st.DataObject, alpha: float) -> None:
    losses = data.draw(st.integers(0, count))
    low, high = binomial_lower(losses, count, alpha), binomial_upper(losses, count, alpha)
    assert low <= losses / count <= high
    assert (high == 1) if losses == count else tail(losses, count, high) == pytest.approx(alpha, rel=1e-6)
    assert (low == 0) if losses == 0 else 1 - tail(losses - 1, count, low) == pytest.approx(alpha, rel=1e-6)


@pytest.mark.parametrize(
    ("epsilon", "counts"),
    [
        (0.005, (598, 947, 1258, 1549, 2100)),
        (0.01, (299, 473, 628, 773, 1049)),
        (0.02, (149, 236, 313, 386, 523)),
        (0.05, (59, 93, 124, 153, 208)),
    ],
)
def test_the_smallest_number_of_questions_for_a_risk(epsilon: float, counts: tuple[int, ...]) -> None:
    assert tuple(questions_for_risk(epsilon, losses) for losses in (0, 1, 2, 3, 5)) == counts


@pytest.mark.parametrize(("questions", "risk"), [(30, 0.095), (100, 0.030), (500, 0.006)])
def test_what_questions_without_a_loss_promise(questions: int, risk: float) -> None:
    assert risk_upper(np.zeros(questions), EXACT) == pytest.approx(risk, abs=5e-4)


@pytest.mark.parametrize(("freedom", "value"), [(1, 12.7062), (2, 4.30265), (7, 2.36462), (9, 2.26216), (63, 1.99834)])
def test_student_t(freedom: int, value: float) -> None:
    assert student_t(freedom) == pytest.approx(value, rel=1e-5)


def test_the_incomplete_beta_function() -> None:
    assert beta_cdf(1, 1, 0.3) == pytest.approx(0.3)
    assert beta_cdf(2, 3, 0.4) == pytest.approx(0.5248)
    assert beta_cdf(0.5, 0.5, 0.25) == pytest.approx(2 / math.pi * math.asin(0.5))
    assert (beta_cdf(2, 3, 0), beta_cdf(2, 3, 1)) == (0, 1)


# Betting


@given(st.lists(st.floats(0, 1), min_size=2, max_size=60), st.floats(0.01, 0.99), st.floats(0.01, 0.99))
def test_betting_refutes_less_the_higher_the_mean(values: list[float], one: float, other: float) -> None:
    rows = np.array([values, values])
    lower, higher = sorted((one, other))
    first, second = max_log_wealth(rows, np.array([lower, higher]))
    assert first >= second - 1e-9
    bound = betting_lower(rows)[0]
    assert 0 <= bound <= np.mean(values) + 1e-9


def losses_of(rng: np.random.Generator, rows: int, questions: int, risk: float, seeds: int) -> Floats:
    """Losses with this mean: 0 or 1, or means over seeds of which a fragile question loses a quarter."""
    if seeds == 1:
        return (rng.random((rows, questions)) < risk).astype(np.float64)
    fragile = rng.random((rows, questions)) < 4 * risk
    return fragile * rng.binomial(seeds, 0.25, (rows, questions)) / seeds


@pytest.mark.parametrize(
    ("seeds", "kind", "power", "wrong"), [(1, EXACT, 0.60, 0.05), (1, BETTING, 0.42, 0.06), (8, BETTING, 0.68, 0.015)]
)
def test_power_and_errors_at_a_risk_of_one_percent(seeds: int, kind: Kind, power: float, wrong: float) -> None:
    """The share of draws of 500 questions in which a risk of at most 1% is proved: at a true risk of .25%, and at 1%."""
    rng = np.random.default_rng(5)
    proved = [
        np.mean([risk_p_value(row, 0.01, kind) <= 0.05 for row in losses_of(rng, 500, 500, risk, seeds)])
        for risk in (0.0025, 0.01)
    ]
    assert proved[0] >= power
    assert proved[1] <= wrong + 2 * math.sqrt(wrong / 500)


def test_a_p_value_and_an_upper_bound_agree() -> None:
    rng = np.random.default_rng(1)
    for seeds, kind in ((1, EXACT), (8, BETTING)):
        for row in losses_of(rng, 20, 300, 0.004, seeds):
            bound = risk_upper(row, kind)
            assert risk_p_value(row, bound + 1e-6, kind) <= 0.05 + 1e-9
            assert risk_p_value(row, bound - 1e-6, kind) >= 0.05 - 1e-9


# Differences


def test_where_nothing_changed_a_bound_has_a_width_and_a_bootstrap_has_none() -> None:
    changes = np.zeros((1, 30))
    assert bootstrap.of_mean(changes[0]) == (0, 0)
    for kind in (EXACT, BETTING):
        assert lower_changes(changes, kind)[0] < -0.1
        assert upper_changes(changes, kind)[0] > 0.1


def departures(rng: np.random.Generator, rows: int, questions: int, seeds: int) -> tuple[Floats, float]:
    """Changes where one question in a hundred can change, on one seed in five, to either side; and their true mean."""
    worse, better = (rng.random((rows, questions)) < share for share in (0.01, 0.002))
    lost, gained = (flags * rng.binomial(seeds, 0.2, flags.shape) for flags in (worse, better & ~worse))
    return (gained - lost) / seeds, 0.2 * (0.002 * 0.99 - 0.01)


@pytest.mark.parametrize(("questions", "seeds"), [(30, 8), (75, 10), (198, 1)])
def test_coverage_at_rare_changes(questions: int, seeds: int) -> None:
    changes, truth = departures(np.random.default_rng(7), 600, questions, seeds)
    kind = kind_of(np.full(questions, float(seeds)))
    covered = (lower_changes(changes, kind) <= truth) & (truth <= upper_changes(changes, kind))
    assert covered.mean() >= 0.93
    spans = [bootstrap.of_mean(row, draws=400) or (0.0, 0.0) for row in changes[:200]]
    assert np.mean([low <= truth <= high for low, high in spans]) < 0.85


@pytest.mark.parametrize(("questions", "seeds"), [(15, 8), (37, 1), (99, 1), (400, 1)])
def test_a_loss_of_two_points_is_rarely_called_equal(questions: int, seeds: int) -> None:
    rng = np.random.default_rng(3)
    lost = -losses_of(rng, 1000, questions, 0.02, seeds)
    equal = 100 * lower_changes(lost, kind_of(np.full(questions, float(seeds)))) > -1
    assert equal.mean() <= 0.025 + 2 * math.sqrt(0.025 / 1000)


@given(st.lists(st.sampled_from((-1.0, 0.0, 0.0, 0.0, 1.0)), min_size=2, max_size=80), st.sampled_from((EXACT, BETTING)))
def test_bounds_hold_the_mean_and_mirror(values: list[float], kind: Kind) -> None:
    changes = np.array([values])
    low, high = lower_changes(changes, kind)[0], upper_changes(changes, kind)[0]
    assert -1 - 1e-9 <= low <= np.mean(values) + 1e-9
    assert np.mean(values) - 1e-9 <= high <= 1 + 1e-9
    assert upper_changes(-changes, kind)[0] == pytest.approx(-low)


def test_the_kind_follows_from_the_number_of_traces() -> None:
    assert kind_of(np.ones(5)) == EXACT
    assert kind_of(np.array([1.0, 1.0, 2.0])) == BETTING


def test_the_order_of_questions_is_fixed_by_their_names() -> None:
    names = [f"q{number}" for number in range(50)]
    order, back = hash_order(names), hash_order(names[::-1])
    assert [names[place] for place in order] == [names[::-1][place] for place in back]
    assert sorted(order) == list(range(50))
    assert list(order) != list(range(50))


# Verdicts


@pytest.mark.parametrize(
    ("bound", "said"),
    [
        ((-0.9, 2.0), EQUAL),
        ((-0.9, -0.1), EQUAL),
        ((-1.0, 2.0), UNKNOWN),
        ((-3.0, 2.0), UNKNOWN),
        ((-3.0, 0.0), UNKNOWN),
        ((-3.0, -0.1), WORSE),
    ],
)
def test_three_verdicts(bound: tuple[float, float], said: str) -> None:
    assert verdict(bound) == said


@pytest.mark.parametrize("kind", [EXACT, BETTING])
@pytest.mark.parametrize(("better", "worse", "said"), [(0, 0, EQUAL), (3, 0, EQUAL), (0, 4, WORSE), (1, 1, EQUAL)])
def test_the_questions_needed_settle_it(kind: Kind, better: int, worse: int, said: str) -> None:
    seen = np.zeros(100)
    seen[:better], seen[better : better + worse] = 1, -1
    seen = seen[hash_order([str(number) for number in range(100)])]
    needed = questions_needed(seen, kind)
    assert needed is not None
    assert needed > 100
    more = np.resize(seen, (1, math.ceil(needed / 100) * 100))
    bound = 100 * lower_changes(more, kind)[0], 100 * upper_changes(more, kind)[0]
    assert verdict(bound) == said


def test_a_loss_of_exactly_the_margin_is_never_settled() -> None:
    assert questions_needed(np.array([-1.0] + [0.0] * 99), EXACT) is None
