"""A gateway in front of a real vLLM with the embedded model. $CGR_VLLM_PYTHON names the Python that has vLLM."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.resources import files

import httpx
import pytest

from cgr.engines.launch.server import ServerProcess
from cgr.engines.launch.vllm import vllm_command
from tests.server.support import LONG, Served, events, joined, metric, served
from tests.server.test_trouble import connection
from tests.support import QUESTION

pytestmark = pytest.mark.vllm
SMALL = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
    "CGR_VLLM_FLAGS": "--enforce-eager",  # it starts sooner
}


@pytest.fixture(scope="module")
def vllm() -> Iterator[ServerProcess]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in SMALL.items():
            patch.setenv(name, value)
        process = ServerProcess(vllm_command(str(files("cgr.model") / "hf"), dtype="float32"))
    try:
        asyncio.run(process.wait())
        yield process
    finally:
        process.end()


@pytest.fixture(scope="module")
def through(vllm: ServerProcess) -> Iterator[Served]:
    options = ("--interval", "32", "--max-answer-tokens", "4", "--think-tags", "<think>,</think>")
    with served("--base-url", f"{vllm.address}/v1", *options, env={"CGR_API_KEY": vllm.key}) as server:
        yield server


def running(vllm: ServerProcess) -> float:
    """Requests that vLLM has running or waiting."""
    text = httpx.get(f"{vllm.address}/metrics", timeout=LONG, trust_env=False).text
    return metric(text, "vllm:num_requests_running") + metric(text, "vllm:num_requests_waiting")


def wait_idle(vllm: ServerProcess) -> None:
    until = time.monotonic() + LONG
    while running(vllm):
        assert time.monotonic() < until, "vLLM goes on"
        time.sleep(0.1)


def test_it_stops_and_answers(through: Served) -> None:
    body = through.chat(QUESTION, cgr={}, temperature=0).json()
    assert body["cgr"]["stop_cause"] in ("certain", "end_of_thinking")
    assert body["cgr"]["answer"] in body["choices"][0]["message"]["content"]
    assert body["choices"][0]["message"]["reasoning_content"]
    assert body["usage"]["completion_tokens"] == sum(
        body["cgr"]["usage"][name] for name in ("thinking_tokens", "answer_tokens")
    )


def test_it_streams_the_same(through: Served) -> None:
    whole = through.chat(QUESTION, cgr={}, temperature=0).json()
    found = through.stream(QUESTION, cgr={"stream_probes": True}, temperature=0)
    assert joined(found, "reasoning") == whole["choices"][0]["message"]["reasoning"]
    assert joined(found, "content") == whole["choices"][0]["message"]["content"]
    assert any(chunk.get("cgr", {}).get("object") == "cgr.probe" for chunk in found)


def test_probes_read_little_of_the_trace_again(through: Served) -> None:
    """Of each probe that says so. vLLM caches whole blocks, of 32 tokens here."""
    asked = {"full": True, "interval": 64, "threshold": 1.0}
    probes = through.chat(QUESTION, cgr=asked, temperature=0).json()["cgr"]["probes"]
    told = [probe for probe in probes if probe["cached_tokens"] is not None]
    assert told
    assert all(probe["cached_tokens"] >= probe["at"] - 32 for probe in told)


def test_a_client_that_leaves_ends_the_work(through: Served, vllm: ServerProcess) -> None:
    for stream in (True, False):
        with connection(through, None, stream=stream, cgr={"threshold": 1.0}):
            through.wait_metric(1, "cgr_requests_in_flight")
    wait_idle(vllm)
    assert through.chat(QUESTION, cgr={}, temperature=0).status_code == 200


def test_many_at_once_are_the_same_as_one(through: Served) -> None:
    alone = through.chat(QUESTION, cgr={}, temperature=0).json()["cgr"]["answer"]
    with ThreadPoolExecutor(8) as pool:
        bodies = list(pool.map(lambda _: through.chat(QUESTION, cgr={}, temperature=0).json(), range(8)))
    assert [body["cgr"]["answer"] for body in bodies] == [alone] * 8


def test_other_requests_reach_its_own_endpoints(through: Served) -> None:
    reply = through.chat("A poem", max_tokens=8)
    assert reply.json()["cgr"]["stop_cause"] == "not_probed"
    assert reply.json()["usage"]["completion_tokens"] == 8
    found = through.stream("A poem", max_tokens=8)
    assert any(chunk.get("cgr", {}).get("stop_cause") == "not_probed" for chunk in found)
    refused = through.chat("A poem", max_tokens=10**6)
    assert refused.status_code == 400
    assert "error" in refused.json()


def test_messages_and_responses(through: Served) -> None:
    message = through.post("/v1/messages", messages=[{"role": "user", "content": QUESTION}], max_tokens=700, cgr={}).json()
    assert [block["type"] for block in message["content"]] == ["thinking", "text"]
    found = events(through.post("/v1/responses", input=QUESTION, cgr={}, stream=True).text)
    assert found[-1]["response"]["cgr"]["rule"] == "cgr"


def test_the_key_of_the_upstream_stays_here(through: Served, vllm: ServerProcess) -> None:
    assert httpx.get(f"{vllm.address}/v1/models", timeout=LONG, trust_env=False).status_code == 401
    assert through.get("/v1/models").status_code == 200
    assert vllm.key not in "".join(through.lines)
