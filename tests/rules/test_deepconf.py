"""The groups of `deepconf`, its floor from warm-up traces, and its decisions on a recording."""

from __future__ import annotations

import math

import pytest

from cgr.errors import UsageError
from cgr.lab.decide.arrays import ProbeArrays
from cgr.lab.store.recorded import RecordedTrace
from cgr.rules import DeepConf
from cgr.rules.deepconf import lowest_groups
from tests.rules.arrays import arrays, traced

NAN, INF = math.nan, math.inf


def thought(number: int, *tops: float) -> RecordedTrace:
    return traced(number, (), length=len(tops), tops=tops)


@pytest.mark.parametrize(
    ("tops", "expected"),
    [
        ((), []),
        ((-4.0,), []),
        ((-4.0, -6.0), [5.0]),
        ((-4.0, -6.0, -2.0), [5.0, 4.0]),
        ((-2.0, -2.0, -8.0), [2.0, 2.0]),
        ((NAN, NAN, -6.0, -1.0, -3.0), [INF, 6.0, 3.5, 2.0]),
        ((-6.0, NAN, NAN, -2.0), [6.0, 6.0, 2.0]),
    ],
)
def test_the_lowest_group_of_two_tokens_so_far(tops: tuple[float, ...], expected: list[float]) -> None:
    """A token that was not sampled does not count, and two of them are no group."""
    assert lowest_groups(tops, 2).tolist() == expected


@pytest.mark.parametrize(
    ("budget", "window"), [(1, 1), (16, 1), (31, 1), (32, 2), (1000, 62), (32_768, 2048), (1_000_000, 2048)]
)
def test_a_budget_has_sixteen_windows_of_at_most_2048_tokens(budget: int, window: int) -> None:
    assert DeepConf(floor=5.0).within(budget) == DeepConf(floor=5.0, window=window)


def test_without_a_floor_it_cannot_be_used_live() -> None:
    with pytest.raises(UsageError) as caught:
        DeepConf().check()
    assert caught.value.message == "The rule deepconf does not know its floor."
    hint = "Give one from warm-up traces of the same model: --set floor=... (docs/rules.md says how)."
    assert caught.value.hint == hint


def warm_up() -> ProbeArrays:
    return arrays(thought(0, -8.0, -6.0, -9.0), thought(1, -2.0, -4.0), thought(2, -9.0), thought(3, NAN, NAN))


@pytest.mark.parametrize(("percentile", "floor"), [(0.0, 3.0), (50.0, 5.0), (100.0, 7.0)])
def test_the_floor_is_a_percentile_of_the_lowest_groups(percentile: float, floor: float) -> None:
    """The lowest groups are 7 and 3; a trace that is too short and one without sampled tokens have none."""
    rule, warm = DeepConf(percentile=percentile, window=2), warm_up()
    assert rule.warm_floor(warm) == floor
    assert rule.on_recording(warm) == DeepConf(percentile=percentile, window=2, floor=floor)
    given = DeepConf(percentile=percentile, window=2, floor=4.5)
    assert given.on_recording(warm) is given


def test_groups_of_another_window_are_computed_anew() -> None:
    warm = warm_up()
    assert DeepConf(percentile=100.0, window=2).warm_floor(warm) == 7.0
    assert DeepConf(percentile=100.0, window=1).warm_floor(warm) == 9.0


def test_without_a_group_the_floor_is_below_everything() -> None:
    assert DeepConf(window=3).warm_floor(arrays(thought(0, -1.0, -1.0))) == -INF


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (DeepConf(floor=5.0, window=2), [-1, 3, -1, 4]),
        (DeepConf(floor=5.1, window=2), [2, 3, -1, 4]),
        (DeepConf(floor=100.0, window=3), [3, 3, -1, 3]),
        (DeepConf(percentile=100.0, window=2), [-1, 3, -1, 4]),
        (DeepConf(percentile=0.0, window=2), [-1, -1, -1, -1]),
    ],
)
def test_where_each_trace_is_given_up(rule: DeepConf, expected: list[int]) -> None:
    """Below the floor, not at it; without a floor it is the one of these traces."""
    traces = thought(0, -4.0, -6.0, -9.0), thought(1, -9.0, -9.0, -0.5), thought(2, -1.0), thought(3, *[-7.0] * 3, -1.0)
    found = rule.decide_all(arrays(*traces))
    assert found.given_up_at.tolist() == expected
    assert found.made is None
