"""What `calibrated` reads from the probes so far, and the steps that it learns from droughts."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from cgr.errors import NotRecorded
from cgr.rules.history import History, features, hopeless_steps

SPAN = 16
Droughts = list[tuple[set[int], bool]]


def unchanged(values: Sequence[float], weights: Sequence[float]) -> Sequence[float]:
    assert len(values) == len(weights)
    return values


@pytest.mark.parametrize(
    ("stated", "expected"),
    [((0, 0), (0.0, 0.0, 9.0)), ((1, 0), (1.0, math.log(2), 0.0)), ((2, 5), (1.0, math.log(3), math.log(6)))],
)
def test_features_of_an_answer_that_stands_in_the_thinking(stated: tuple[int, int], expected: tuple[float, ...]) -> None:
    """At the end of the span, with a certainty of one half: all other features but the constant are 0."""
    past = History(0.5, stated=stated)
    assert features(past, SPAN, SPAN) == (1.0, 0.0, 0.0, 0.0, 0.0)
    assert features(past, SPAN, SPAN, stated=True) == pytest.approx((1.0, 0.0, 0.0, 0.0, 0.0, *expected))


def test_features_of_a_certainty_a_distance_a_position_and_changes() -> None:
    expected = (1.0, math.log(3), math.log(1 + 32 * 4 / 16), math.log(8 / 16), math.log(3))
    assert features(History(0.75, held=4, changes=2), 8, SPAN) == pytest.approx(expected)


def test_features_that_were_not_recorded() -> None:
    with pytest.raises(NotRecorded) as caught:
        features(History(0.5), 8, SPAN, stated=True)
    assert caught.value.message == "Where the answer of the probe at token 8 stands in the thinking was not recorded."
    assert caught.value.hint == "Fit the rule to runs without it, or add it: cgr probe RUN --stated."


def test_a_step_is_the_share_of_wrong_traces_among_those_that_reached_it() -> None:
    """40 traces reach 1, 20 of them reach 4, 19 of these reach 8, which are too few; 5 have no drought at all."""
    long: Droughts = [({0, 1, 4, 8}, True)] * 15 + [({0, 1, 4, 8}, False)] * 4 + [({1, 4}, False)]
    droughts: Droughts = [*long, *[({0, 1}, False)] * 20, *[(set(), True)] * 4, ({0}, True)]
    assert hopeless_steps(droughts, SPAN, unchanged) == ((1 / 16, 0.378048780), (4 / 16, 0.738095238))  # 15.5 of 41, of 21


def test_each_length_is_weighted_by_its_traces() -> None:
    weights: list[Sequence[float]] = []

    def isotonic(values: Sequence[float], weighted: Sequence[float]) -> Sequence[float]:
        weights.append(weighted)
        return values

    hopeless_steps([*[({2, 4}, True)] * 20, *[({2}, False)] * 3], SPAN, isotonic)
    assert weights == [[23, 20]]


def test_lengths_with_the_same_chance_are_one_step() -> None:
    """But for rounding."""
    droughts: Droughts = [({2, 4, 8}, True)] * 20
    same = (0.5, 0.5 + 1e-12, 0.75)
    assert hopeless_steps(droughts, SPAN, lambda values, weights: same) == ((2 / 16, 0.5), (8 / 16, 0.75))


def test_without_a_drought_there_is_no_step() -> None:
    assert hopeless_steps([({0}, True)] * 30, SPAN, unchanged) == ()
    assert hopeless_steps([], SPAN, unchanged) == ()
