"""A gateway in front of llama.cpp's own HTTP server, with the embedded model in it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.engines.completions.upstream import KEY, address
from tests.server.support import Served, joined, served
from tests.support import QUESTION

BOXED = f"{QUESTION} Use \\boxed{{}}."


@pytest.fixture(scope="module")
def llama() -> Iterator[Served]:
    options = ("--interval", "32", "--budget", "1200", "--max-answer-tokens", "4")
    with served("--base-url", f"{address()}/v1", *options, env={"CGR_API_KEY": KEY}) as server:
        yield server


def test_it_stops_and_answers(llama: Served) -> None:
    body = llama.chat(QUESTION, cgr={}, seed=3).json()
    assert body["cgr"]["stop_cause"] == "certain"
    assert body["cgr"]["answer"] == "169"
    assert "\\boxed{169}" in body["choices"][0]["message"]["content"]
    assert body["cgr"]["usage"]["probe_tokens"]["cached"] > 0


def test_it_streams(llama: Served) -> None:
    found = llama.stream(QUESTION, cgr={"stream_probes": True}, seed=3)
    assert "\\boxed{169}" in joined(found, "content")
    assert sum("cgr" in chunk for chunk in found[:-1]) >= 1


def test_other_requests_reach_its_own_endpoint(llama: Served) -> None:
    reply = llama.chat(QUESTION, max_tokens=8)
    assert reply.status_code == 200
    assert reply.json()["cgr"]["stop_cause"] == "not_probed"
    assert reply.json()["choices"][0]["finish_reason"] == "length"
    found = llama.stream(QUESTION, max_tokens=8)
    assert found[-1]["choices"] == [] or found[-1]["choices"][0]["finish_reason"] == "length"
    assert any(chunk.get("cgr", {}).get("stop_cause") == "not_probed" for chunk in found)


def test_a_client_that_leaves_frees_the_slots(llama: Served) -> None:
    from tests.server.test_trouble import connection

    for _ in range(6):
        with connection(llama, None, stream=True, cgr={"threshold": 1.0}) as client:
            assert client.recv(1)  # the thinking has begun
    assert llama.chat(QUESTION, cgr={}, seed=3).status_code == 200


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/responses", {"input": QUESTION, "max_output_tokens": 8}),
        ("/v1/messages", {"messages": [{"role": "user", "content": QUESTION}], "max_tokens": 8}),
    ],
)
def test_other_apis_reach_its_own_endpoints(llama: Served, path: str, body: dict[str, Any]) -> None:
    assert llama.post(path, **body).json()["cgr"]["stop_cause"] == "not_probed"
    text = llama.post(path, **body, stream=True).text
    assert text.count('"cgr.result"') == text.count('"stop_cause":"not_probed"') == 1
    probed = llama.post(path, **body, cgr={}).json()
    assert probed["cgr"]["rule"] == "cgr"
