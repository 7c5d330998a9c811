"""The same weights in llama.cpp and in torch agree on saved traces, token by token and probe by probe."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from cgr import open_model
from cgr.engines.hf.engine import TransformersEngine
from tests.engines.hf.models import SPEC
from tests.engines.parity import Next, Reading, assert_parity, read, save

pytestmark = pytest.mark.heavy


async def test_llama_cpp_and_torch_agree_on_fifty_traces(hf: TransformersEngine, tmp_path: Path) -> None:
    async with open_model(sessions=2, threads=1) as model:
        traces = await save(model.engine, tmp_path / "run", sessions=2)
        there = await read(model.engine, traces)
    here = await read(hf, traces)
    assert len(traces) == 50
    assert_parity(here, there)
    for saved, reading in list(zip(traces, here, strict=True))[:10]:
        suffix = await hf.encode(SPEC.prefix)
        cuts = [probe.at for probe in reading.probes]
        packed = await hf.probe_many(saved.prompt, saved.trace, cuts, suffix, SPEC.max_answer_tokens, SPEC.done())
        probes = tuple(SPEC.read(at, one.tokens, one.ended) for at, one in zip(cuts, packed, strict=True))
        assert [probe.answer for probe in probes] == [probe.answer for probe in reading.probes]
        assert [probe.certainty for probe in probes] == pytest.approx([one.certainty for one in reading.probes], abs=1e-5)


def test_a_difference_is_noticed() -> None:
    """A test of the test: a token, an answer or a certainty that differs; a token without a clear lead may differ."""
    probe = SPEC.read(32, (), True)
    reading = Reading((Next(11, 5, 0.5),), (replace(probe, answer="7", certainty=0.5),))
    assert_parity([reading], [replace(reading, probes=(replace(reading.probes[0], certainty=0.5009),))])
    others = [
        replace(reading, nexts=(Next(11, 6, 0.5),)),
        replace(reading, probes=(replace(reading.probes[0], answer="8"),)),
        replace(reading, probes=(replace(reading.probes[0], certainty=0.502),)),
    ]
    for other in others:
        with pytest.raises(AssertionError):
            assert_parity([reading], [other])
    close = replace(reading, nexts=(Next(11, 5, 0.5), Next(22, 1, 0.0005)))
    assert_parity([close], [replace(reading, nexts=(Next(11, 5, 0.5), Next(22, 2, 0.0005)))])
