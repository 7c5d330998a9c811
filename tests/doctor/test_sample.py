"""The cost of a probe, and the interval that keeps it low."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cgr.doctor.sample import Cost, ProbeSetup, TimedTrace, interval_for, measure_cost
from cgr.probing import ProbeSpec
from tests.support import scripted


@pytest.mark.parametrize(
    ("probe", "token", "share", "interval"),
    [
        (0.016, 0.001, 0.05, 320),  # exactly a twentieth
        (0.0161, 0.001, 0.05, 352),  # a little more
        (0.016, 0.001, 0.5, 32),
        (0.0001, 0.001, 0.05, 32),  # never less than the grid
        (1.0, 0.05, 0.05, 416),
    ],
)
def test_the_interval(probe: float, token: float, share: float, interval: int) -> None:
    assert interval_for(probe, token, share) == interval


@given(st.floats(1e-6, 1e3), st.floats(1e-6, 1e3), st.floats(0.001, 0.9))
def test_the_interval_is_the_smallest_within_the_share(probe: float, token: float, share: float) -> None:
    interval = interval_for(probe, token, share)
    assert probe / (interval * token) <= share * (1 + 1e-9)
    assert interval == 32 or probe / ((interval - 32) * token) > share * (1 - 1e-9)


async def measured(plain: list[float], probed: list[float], probing: list[float]) -> Cost:
    setup = await ProbeSetup.create(scripted("a b c"), "?", ProbeSpec(), (10, 20, 30))
    trace = TimedTrace(stretch_seconds=probed, probe_seconds=probing)
    return measure_cost(setup, TimedTrace(stretch_seconds=plain), trace, 0.05, 100)


async def test_the_first_stretch_does_not_count_because_it_includes_the_prompt() -> None:
    found = await measured([9.0, 1.0, 1.0], [9.0, 1.0, 1.0], [0.5, 0.5, 0.5])
    assert found.token_seconds == pytest.approx(0.1)
    assert found.probe_seconds == pytest.approx(0.5)
    assert found.own_share == pytest.approx(0.05)
    assert (found.at, found.interval) == (30, 128)


async def test_a_probe_includes_rewinding_the_cache() -> None:
    found = await measured([9.0, 1.0, 1.0], [9.0, 1.2, 1.2], [0.5, 0.5, 0.5])
    assert found.probe_seconds == pytest.approx(0.7)


async def test_a_faster_probed_trace_does_not_reduce_the_cost() -> None:
    found = await measured([9.0, 1.0, 1.0], [9.0, 0.4, 0.4], [0.5, 0.5, 0.5])
    assert found.probe_seconds == pytest.approx(0.5)
