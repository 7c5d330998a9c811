"""What several readings of the same probes come to."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cgr.doctor.noise import Noise, Way, judge


def judged(*certainties: tuple[float, ...], threshold: float = 0.99, answers: tuple[str, ...] = ()) -> Noise:
    said = answers or ("7",) * len(certainties)
    ways = [Way(f"way {n}", values, (said[n],) * len(values)) for n, values in enumerate(certainties)]
    return judge(ways, tuple(range(len(certainties[0]))), threshold, repeats=True)


def test_no_spread_is_exact() -> None:
    noise = judged((0.3, 0.99), (0.3, 0.99))
    assert noise.exact
    assert (noise.largest, noise.log_odds, noise.moved) == (0, 0, 0)
    assert noise.low == pytest.approx(0.99)
    assert noise.high == pytest.approx(0.99)


def test_the_widest_spread_counts() -> None:
    noise = judged((0.3, 0.50), (0.3, 0.57), (0.31, 0.66))
    assert noise.largest == pytest.approx(0.16)
    assert not noise.exact


def test_a_spread_in_the_middle_is_less_at_the_threshold() -> None:
    """Noise of logits carries over as log-odds: .04 around one half is far less at .99."""
    noise = judged((0.48,), (0.52,))
    assert noise.log_odds == pytest.approx(2 * math.log(0.52 / 0.48))
    assert 0.98 < noise.low < 0.99 < noise.high < 0.993


def test_where_no_log_odds_can_be_read_the_spread_itself_is_taken() -> None:
    noise = judged((0.9995,), (0.9999,))
    assert noise.low == pytest.approx(0.9896)
    assert noise.high == pytest.approx(0.9904)


@pytest.mark.parametrize(("threshold", "moved"), [(0.5, 0), (0.95, 1), (0.9, 1), (0.97, 0), (1.0, 0)])
def test_a_stop_moves_where_the_ways_disagree_about_it(threshold: float, moved: int) -> None:
    noise = judged((0.89, 0.96), (0.91, 0.9), threshold=threshold)
    assert noise.moved == moved


def test_other_answers_are_never_exact() -> None:
    noise = judged((0.5, 0.5), (0.5, 0.5), answers=("7", "8"))
    assert noise.answers_changed == 2
    assert not noise.exact


@given(st.lists(st.tuples(*[st.floats(0, 1)] * 3), min_size=1, max_size=5), st.floats(0, 1))
def test_the_band_holds_the_threshold(rows: list[tuple[float, ...]], threshold: float) -> None:
    noise = judged(*rows, threshold=threshold)
    assert 0 <= noise.low <= threshold + 1e-9
    assert threshold - 1e-9 <= noise.high <= 1
