"""All cuts of a trace probed at once: the same answers as cut by cut, in the engine and in the lab."""

from __future__ import annotations

import asyncio
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cgr.engines.hf.engine import TransformersEngine
from cgr.lab.record.generate import Plan, agenerate
from cgr.lab.record.probe import aprobe
from cgr.lab.store.config import ProbeRequest
from cgr.records import Probe, Question
from cgr.settings import Settings
from tests.engines.hf.models import GREEDY, SPEC, assert_alike, opened, random_model, suffix_of, thought
from tests.lab.record.test_generate import kept
from tests.lab.record.test_text import only_text
from tests.support import OTHERS, QUESTION

pytestmark = pytest.mark.heavy
CUTS = [1, 2, 16, 17, 40, 64, 90]


@pytest.mark.parametrize("kind", ["embedded", "grouped heads"])
@pytest.mark.parametrize("queries", [1024, 16])
async def test_packed_equals_one_by_one(
    kind: str, queries: int, hf: TransformersEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also in groups of one or two cuts, and when some answers end before others."""
    monkeypatch.setattr("cgr.engines.hf.packed_probe.MAX_QUERIES", queries)
    engine = hf if kind == "embedded" else await opened(random_model(tmp_path, "Llama"), threads=1)
    trace = await thought(engine, QUESTION, GREEDY, 96)
    prompt, suffix = await engine.prompt(QUESTION), await suffix_of(engine)
    packed = await engine.probe_many(prompt, trace, CUTS, suffix, 6, SPEC.done())
    session = await engine.open(prompt, GREEDY, room=128)
    for cut, found in zip(CUTS, packed, strict=True):
        await session.append(trace[len(session.trace) : cut])
        alone = await session.probe(suffix, 6, SPEC.done())
        assert_alike(found, alone)
        assert found.prefilled + found.cached == alone.prefilled + alone.cached
    await session.close()
    assert sum(one.prefilled for one in packed) == len(prompt) + CUTS[-1] + len(CUTS) * len(suffix)
    assert await engine.probe_many(prompt, trace, [], suffix, 6, SPEC.done()) == []


async def test_packed_probes_and_thinking_share_the_model(hf: TransformersEngine) -> None:
    trace = await thought(hf, QUESTION, GREEDY, 96)
    prompt, suffix = await hf.prompt(QUESTION), await suffix_of(hf)
    once = await hf.probe_many(prompt, trace, CUTS, suffix, 4, SPEC.done())
    again, others, same = await asyncio.gather(
        hf.probe_many(prompt, trace, CUTS, suffix, 4, SPEC.done()),
        thought(hf, OTHERS[0], GREEDY, 64),
        thought(hf, QUESTION, GREEDY, 96),
    )
    for one, other in zip(once, again, strict=True):
        assert_alike(one, other)
    assert len(others) == 64
    assert same == trace


def gist(probe: Probe) -> dict[str, Any]:
    """A probe without its cost and its floating-point numbers, which differ in the last digits."""
    numbers = ("seconds", "prefilled", "cached", "certainty", "probabilities", "entropy")
    return probe.to_dict() | dict.fromkeys(numbers) | {"tokens": [(token.id, token.text) for token in probe.tokens]}


@pytest.mark.parametrize("request_", [ProbeRequest(interval=20), ProbeRequest(where="paragraph", close_think="always")])
async def test_the_lab_records_the_same_probes(
    hf: TransformersEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request_: ProbeRequest
) -> None:
    questions = tuple(Question(str(number), text, "1", "integer") for number, text in enumerate((QUESTION, OTHERS[0])))
    plan = Plan(questions, 2, Settings(budget=100, max_answer_tokens=4, interval=20), written_tokens=8)
    await agenerate(tmp_path / "packed", plan, hf, sessions=4)
    shutil.copytree(tmp_path / "packed", tmp_path / "cut by cut")
    calls: list[int] = []
    probe_many = hf.probe_many

    async def counted(*arguments: Any, **more: Any) -> Any:
        calls.append(1)
        return await probe_many(*arguments, **more)

    monkeypatch.setattr(hf, "probe_many", counted)
    name = await aprobe(tmp_path / "packed", request_, hf, sessions=4)
    monkeypatch.setattr(TransformersEngine, "capabilities", replace(hf.capabilities, packed=False))
    assert await aprobe(tmp_path / "cut by cut", request_, hf, sessions=4) == name
    packed, plain = (kept(tmp_path / folder, name) for folder in ("packed", "cut by cut"))
    assert len(calls) == sum(1 for trace in packed if trace.probes)
    for one, other in zip(packed, plain, strict=True):
        assert [gist(probe) for probe in (*one.probes, one.final)] == [
            gist(probe) for probe in (*other.probes, other.final)
        ]
        sure, as_sure = ([probe.certainty for probe in (*trace.probes, trace.final)] for trace in (one, other))
        assert sure == pytest.approx(as_sure, abs=1e-5)
    assert any(trace.probes for trace in packed)


async def test_a_run_gives_the_same_probes_by_its_text(hf: TransformersEngine, tmp_path: Path) -> None:
    questions = (Question("a", QUESTION, "1", "integer"),)
    await agenerate(tmp_path, Plan(questions, 2, Settings(budget=100, max_answer_tokens=4, interval=20)), hf, sessions=2)
    text, request_ = only_text(tmp_path), ProbeRequest(interval=20, max_answer_tokens=4)
    for folder in (tmp_path, text):
        assert await aprobe(folder, request_, hf, sessions=2) == "default"
    for one, other in zip(kept(tmp_path, "default"), kept(text, "default"), strict=True):
        assert [gist(probe) for probe in one.probes] == [gist(probe) for probe in other.probes]
