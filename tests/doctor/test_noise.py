"""The noise of several series of the same probes."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cgr.doctor.noise import Noise, ProbeSeries, compare_series


def noise_of(*certainties: tuple[float, ...], threshold: float = 0.99, answers: tuple[str, ...] = ()) -> Noise:
    texts = answers or ("7",) * len(certainties)
    series = [ProbeSeries(f"way {n}", values, (texts[n],) * len(values)) for n, values in enumerate(certainties)]
    return compare_series(series, tuple(range(len(certainties[0]))), threshold, repeats=True)


def test_no_spread_is_exact() -> None:
    noise = noise_of((0.3, 0.99), (0.3, 0.99))
    assert noise.exact
    assert (noise.largest, noise.log_odds, noise.moved) == (0, 0, 0)
    assert noise.low == pytest.approx(0.99)
    assert noise.high == pytest.approx(0.99)


def test_the_widest_spread_counts() -> None:
    noise = noise_of((0.3, 0.50), (0.3, 0.57), (0.31, 0.66))
    assert noise.largest == pytest.approx(0.16)
    assert not noise.exact


def test_a_spread_in_the_middle_is_less_at_the_threshold() -> None:
    """Noise of logits carries over as log-odds: .04 around one half is far less at .99."""
    noise = noise_of((0.48,), (0.52,))
    assert noise.log_odds == pytest.approx(2 * math.log(0.52 / 0.48))
    assert 0.98 < noise.low < 0.99 < noise.high < 0.993


def test_near_certainty_1_the_range_is_used_instead_of_log_odds() -> None:
    noise = noise_of((0.9995,), (0.9999,))
    assert noise.low == pytest.approx(0.9896)
    assert noise.high == pytest.approx(0.9904)


@pytest.mark.parametrize(("threshold", "moved"), [(0.5, 0), (0.95, 1), (0.9, 1), (0.97, 0), (1.0, 0)])
def test_a_stop_moves_where_the_series_disagree_about_it(threshold: float, moved: int) -> None:
    noise = noise_of((0.89, 0.96), (0.91, 0.9), threshold=threshold)
    assert noise.moved == moved


def test_different_answers_are_never_exact() -> None:
    noise = noise_of((0.5, 0.5), (0.5, 0.5), answers=("7", "8"))
    assert noise.answers_changed == 2
    assert not noise.exact


@given(st.lists(st.tuples(*[st.floats(0, 1)] * 3), min_size=1, max_size=5), st.floats(0, 1))
def test_the_band_holds_the_threshold(rows: list[tuple[float, ...]], threshold: float) -> None:
    noise = noise_of(*rows, threshold=threshold)
    assert 0 <= noise.low <= threshold + 1e-9
    assert threshold - 1e-9 <= noise.high <= 1
