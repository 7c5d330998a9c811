"""The measurements on short traces: they measure what they should, whatever the result is."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from benchmarks import probing
from benchmarks.rows import Results
from benchmarks.sessions import Bench
from cgr.engines.llama.engine import LlamaEngine

Measurement = Callable[[Bench, str, int, Results], Awaitable[list[int]]]


@pytest.mark.parametrize(("cut", "seconds"), [(5, 0.5), (10, 1.0), (15, 2.0), (20, 3.0), (30, 5.0), (40, 7.0), (99, 7.0)])
def test_cuts_between_measured_ones_are_interpolated(cut: int, seconds: float) -> None:
    assert probing._between([(10, 1.0), (20, 3.0), (40, 7.0)], cut) == pytest.approx(seconds)


@pytest.mark.parametrize("measure", [probing.between, probing.beside])
async def test_on_the_way(engine: LlamaEngine, measure: Measurement) -> None:
    results = Results(quick=True)
    ids = await measure(Bench(engine), "embedded", 96, results)
    assert len(ids) == 96
    ratio, over = results.rows
    assert ratio.value > 0
    assert ratio.what.startswith("thinking 96 tokens with 3 probes")
    assert over.value == pytest.approx(ratio.value / ratio.detail["predicted_by_tokens"])
    assert 1 < ratio.detail["predicted_by_tokens"] < 2


@pytest.mark.parametrize(("hold", "wanted"), [(False, (None, None)), (True, (1.25, 8))])
async def test_over_a_recording(engine: LlamaEngine, hold: bool, wanted: tuple[float | None, float | None]) -> None:
    results, bench = Results(quick=True), Bench(engine)
    ids = await engine.encode("So 7*86=602. " * 60)
    await probing.over_a_recording(bench, "embedded", ids[:384], results, hold=hold)
    over, cheaper = results.rows
    assert (over.hold, cheaper.hold) == wanted
    assert (over.sense, cheaper.sense) == ("at most", "at least")
    assert [cut for cut, _ in cheaper.detail["timed"]] == [32, 96, 192, 384]


async def test_growth(engine: LlamaEngine) -> None:
    results = Results(quick=True)
    ids = await engine.encode("So 7*86=602. " * 60)
    await probing.growth(Bench(engine), "embedded", ids[:200], (50, 150), results)
    assert [one["at"] for one in results.curves["embedded, a probe"]] == [50, 150]
    assert results.rows[0].hold == 2
