"""A real vLLM server, started as a child process. $CGR_VLLM_PYTHON names the Python that has vLLM."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from cgr import Model, open_model
from cgr.engines.base import Sampling
from cgr.engines.completions.session import CompletionsSession
from cgr.engines.launch.server import LaunchedEngine
from cgr.lab.questions import load_questions
from cgr.lab.record.generate import Plan, agenerate
from cgr.lab.store import Store
from cgr.settings import Settings
from tests.engines.hf.models import HF
from tests.engines.parity import assert_parity, read, save
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
    assert isinstance(model.engine, LaunchedEngine)
    yield model
    model.engine.end()


@pytest_asyncio.fixture
async def vllm(started: Model) -> AsyncIterator[Model]:
    yield started
    await started.aclose()


def engine_of(model: Model) -> LaunchedEngine:
    assert isinstance(model.engine, LaunchedEngine)
    return model.engine


async def metric(model: Model, pattern: str) -> int:
    """The sum of the server's metrics whose name matches."""
    async with aiohttp.ClientSession() as client, client.get(f"{engine_of(model).addresses[0]}/metrics") as reply:
        text = await reply.text()
    found = re.findall(rf"^vllm:{pattern}\{{[^}}]*\}} ([\d.e+]+)", text, re.MULTILINE)
    assert found
    return int(sum(map(float, found)))


async def running(model: Model) -> int:
    """How many requests the server has running or waiting."""
    return await metric(model, "num_requests_(?:running|waiting)")


async def until_running(model: Model, count: int) -> None:
    for _ in range(600):
        if await running(model) == count:
            return
        await asyncio.sleep(0.1)
    raise AssertionError(f"The server never had {count} requests.")


async def session_of(model: Model, room: int, **sampling: Any) -> CompletionsSession:
    return await engine_of(model).open(QUESTION, Sampling(**sampling), room=room)


async def test_detected_features(vllm: Model) -> None:
    found = engine_of(vllm).dialect
    assert found.server.startswith("vllm ")
    assert (found.api, found.token_prompts, found.token_ids, found.logprobs) == ("openai", True, "field", 20)
    assert (found.raw_logprobs, found.logit_bias, found.seed, found.stream, found.prefix_cache) == (True,) * 5
    assert found.context == 3072
    assert engine_of(vllm).notes == ()


async def test_the_same_answers_as_llama_cpp(vllm: Model, model: Model) -> None:
    """The same float32 weights in both: the same answers, and nearly the same certainties."""
    options: dict[str, Any] = GREEDY | {"rule": "only-watches", "budget": 96, "interval": 32}
    there, here = await vllm.asolve(QUESTION, **options), await model.asolve(QUESTION, **options)
    assert there.thinking == here.thinking
    assert [probe.answer for probe in there.probes] == [probe.answer for probe in here.probes]
    assert certainties(there) == pytest.approx(certainties(here), abs=1e-3)
    assert any(probe.cached for probe in there.probes)


async def test_probes_do_not_change_a_trace(vllm: Model) -> None:
    options: dict[str, Any] = {"budget": 64, "seed": 4, "rule": "only-watches", "max_answer_tokens": 4}
    often, never = [await vllm.asolve(QUESTION, **options, interval=interval) for interval in (16, 100)]
    assert often.thinking == never.thinking


async def test_closing_a_session_cancels_its_requests(vllm: Model) -> None:
    """The server notices the disconnect and stops, long before the stream would have ended. What it generated is counted
    afterwards, because a short stream may be over before anybody can see it run."""
    before = await metric(vllm, "generation_tokens_total")
    session = await session_of(vllm, 1800)
    await session.think(4, ban_end=True)
    await session.close()
    await until_running(vllm, 0)
    assert 4 <= await metric(vllm, "generation_tokens_total") - before < 1500
    assert len(session.trace) + session.wasted < 1500


async def test_more_prompt_tokens_than_fit_in_one_pass(vllm: Model) -> None:
    """vLLM on CPUs crashes here unless it prefills each prompt in one pass."""
    prompts = [[5 + number, *range(5, 305), *range(5, 305), *range(5, 305)] for number in range(4)]

    async def first(prompt: list[int]) -> int:
        session = await engine_of(vllm).open(prompt, Sampling(seed=1, limit=4), room=8)
        try:
            return len((await session.think(4)).ids)
        finally:
            await session.close()

    assert await asyncio.gather(*map(first, prompts)) == [4] * 4


async def test_forcing_with_and_without_a_ban(vllm: Model) -> None:
    forced = await vllm.asolve(QUESTION, **GREEDY, rule="budget-forcing", budget=400)
    assert forced.thinking_tokens == 400
    assert forced.forced > 0
    session = await session_of(vllm, 500, temperature=0.0)
    stretch = await session.think(400, ban_end=True)
    await session.close()
    assert (len(stretch.ids), stretch.ended) == (400, False)


async def test_a_run_can_be_resumed(vllm: Model, tmp_path: Path) -> None:
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
    """On the same token ids: the same likeliest tokens, and the same answers and certainties of probes."""
    async with open_model(sessions=2, threads=1) as model:
        traces = await save(model.engine, tmp_path / "run", sessions=2)
        there = await read(model.engine, traces)
    assert len(traces) == 50
    assert_parity(await read(engine_of(vllm), traces), there)
