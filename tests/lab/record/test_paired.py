"""Traces that a second model is probed on while they are generated."""

from __future__ import annotations

from pathlib import Path

from cgr import Model, Question, Settings
from cgr.engines.base import ModelInfo
from cgr.engines.paired import PairedEngine
from cgr.lab.record.generate import Plan, agenerate
from cgr.lab.store import Store
from tests.engines.test_paired import Letters
from tests.support import QUESTION, UNSURE


async def test_probes_of_a_second_model_are_stored_under_its_name(model: Model, tmp_path: Path) -> None:
    prober = Letters(lambda at, suffix: UNSURE)
    prober.info = ModelInfo("letters", "scripted", 100_000, "<think>", "</think>", fingerprint="f")
    plan = Plan((Question("q", QUESTION, "1", "integer"),), 1, Settings(budget=96, interval=32), probe=True)
    await agenerate(tmp_path / "run", plan, PairedEngine(model.engine, prober))
    with Store.open(tmp_path / "run") as store:
        assert (store.config.model, store.config.fingerprint) == ("embedded", model.engine.info.fingerprint)
        (probe_set,) = store.probe_sets().values()
        assert (probe_set.model, probe_set.fingerprint) == ("letters", "f")
        (trace,) = store.recorded()
    assert [(probe.at, probe.answer) for probe in trace.probes] == [(32, "3"), (64, "3")][: len(trace.probes)]
    assert trace.probes
    assert trace.final.answer != "3" or trace.final.certainty != 0.25
    assert all(trace.text.startswith(told.removesuffix("Final Answer: \\boxed{")) for told in prober.told)
