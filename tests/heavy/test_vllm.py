"""A real vLLM, started as a child: it solves, generates, is cancelled, forced, resumed. $CGR_VLLM_PYTHON: its Python."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio

from cgr import Model, open_model
from cgr.engines.base import Sampling
from cgr.engines.completions.session import RemoteSession
from cgr.engines.launch.server import ChildEngine
from cgr.lab.questions import load_questions
from cgr.lab.record.generate import Plan, agenerate
from cgr.lab.store import Store
from cgr.settings import Settings
from tests.heavy.models import HF
from tests.heavy.parity import assert_parity, read, save
from tests.support import QUESTION, certainties

pytestmark = pytest.mark.vllm
SMALL = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
}
GREEDY: dict[str, Any] = {"temperature": 0.0, "max_answer_tokens": 4}


@pytest.fixture(scope="module")
def started() -> Iterator[Model]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in SMALL.items():
            patch.setenv(name, value)
        model = open_model(f"vllm:{HF}", sessions=4, dtype="float32")
    assert isinstance(model.engine, ChildEngine)
    yield model
    model.engine.end()


@pytest_asyncio.fixture
async def vllm(started: Model) -> AsyncIterator[Model]:
    yield started
    await started.aclose()


def engine_of(model: Model) -> ChildEngine:
    assert isinstance(model.engine, ChildEngine)
    return model.engine


async def running(model: Model) -> int:
    """Requests that the server works on, by its own count."""
    async with httpx.AsyncClient(trust_env=False) as client:
        text = (await client.get(f"{engine_of(model).addresses[0]}/metrics")).text
    found = re.findall(r"^vllm:num_requests_(?:running|waiting)\{[^}]*\} ([\d.]+)", text, re.MULTILINE)
    assert found
    return int(sum(map(float, found)))


async def until_running(model: Model, count: int) -> None:
    while await running(model) != count:  # noqa: ASYNC110 - only the server knows
        await asyncio.sleep(0.1)


async def session_of(model: Model, room: int, **sampling: Any) -> RemoteSession:
    return await engine_of(model).open(QUESTION, Sampling(**sampling), room=room)


async def test_what_is_found_out(vllm: Model) -> None:
    found = engine_of(vllm).dialect
    assert found.server.startswith("vllm ")
    assert (found.api, found.token_prompts, found.token_ids, found.logprobs) == ("openai", True, "field", 20)
    assert (found.raw_logprobs, found.logit_bias, found.seed, found.stream, found.prefix_cache) == (True,) * 5
    assert found.context == 2048
    assert engine_of(vllm).notes == ()


async def test_a_question_as_it_is_answered_here(vllm: Model, model: Model) -> None:
    """The same weights in llama.cpp, F32 in both: the same answers, and nearly the same certainties."""
    options: dict[str, Any] = GREEDY | {"rule": "only-watches", "budget": 96, "interval": 32}
    there, here = await vllm.asolve(QUESTION, **options), await model.asolve(QUESTION, **options)
    assert there.thinking == here.thinking
    assert [probe.answer for probe in there.probes] == [probe.answer for probe in here.probes]
    assert certainties(there) == pytest.approx(certainties(here), abs=1e-3)
    assert any(probe.cached for probe in there.probes)


async def test_a_seed_is_a_trace_however_it_is_probed(vllm: Model) -> None:
    options: dict[str, Any] = {"budget": 64, "seed": 4, "rule": "only-watches", "max_answer_tokens": 4}
    often, never = [await vllm.asolve(QUESTION, **options, interval=interval) for interval in (16, 100)]
    assert often.thinking == never.thinking


async def test_hanging_up_cancels(vllm: Model) -> None:
    """The server sees the disconnect: nothing runs any more, long before the stream would have ended."""
    session = await session_of(vllm, 1800)
    await session.think(4, ban_end=True)
    await until_running(vllm, 1)
    await session.close()
    await until_running(vllm, 0)
    assert len(session.trace) + session.wasted < 1000


async def test_more_prompts_than_one_pass_reads(vllm: Model) -> None:
    """Which a vLLM for CPUs does not survive, unless it is told to read each prompt in one go."""
    prompts = [[5 + number, *range(5, 305), *range(5, 305), *range(5, 305)] for number in range(4)]

    async def first(prompt: list[int]) -> int:
        session = await engine_of(vllm).open(prompt, Sampling(seed=1, limit=4), room=8)
        try:
            return len((await session.think(4)).ids)
        finally:
            await session.close()

    assert await asyncio.gather(*map(first, prompts)) == [4] * 4


async def test_forcing_by_replacing_and_by_banning(vllm: Model) -> None:
    forced = await vllm.asolve(QUESTION, **GREEDY, rule="budget-forcing", budget=400)
    assert forced.thinking_tokens == 400
    assert forced.forced > 0
    session = await session_of(vllm, 500, temperature=0.0)
    stretch = await session.think(400, ban_end=True)
    await session.close()
    assert (len(stretch.ids), stretch.ended) == (400, False)


async def test_a_run_goes_on_where_it_stopped(vllm: Model, tmp_path: Path) -> None:
    settings = Settings.of(rule="fixed-budget", budget=48, interval=16, max_answer_tokens=4)
    questions = load_questions("arithmetic", limit=2)
    for seeds in (1, 2):
        plan = Plan(questions, seeds, settings, "arithmetic", probe=True)
        await agenerate(tmp_path / "run", plan, vllm.engine, sessions=2)
        with Store.open(tmp_path / "run") as store:
            assert len(store.made()) == 2 * seeds
    with Store.open(tmp_path / "run") as store:
        traces = list(store.recorded())
    assert all(0 < trace.thinking_tokens <= 48 and trace.probes for trace in traces)


async def test_llama_cpp_and_vllm_agree_on_fifty_traces(vllm: Model, tmp_path: Path) -> None:
    """Given the same token ids: the same likeliest tokens, and every probe's answer and certainty."""
    async with open_model(sessions=2, threads=1) as model:
        traces = await save(model.engine, tmp_path / "run", sessions=2)
        there = await read(model.engine, traces)
    assert len(traces) == 50
    assert_parity(await read(engine_of(vllm), traces), there)
