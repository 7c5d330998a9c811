"""Programs for evaluations, and LiteLLM, against a real `cgr serve`."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from cgr import Model
from cgr.lab.questions import load_questions
from tests.clients.support import FOLDER, LONG, OFFLINE, PROGRAMS, check, environment_of, model_of, python, run
from tests.server.support import Served, served

pytestmark = pytest.mark.clients
KEY = "sk-test-0123456789abcdef0123456789abcdef"


def test_litellm_as_a_client(server: Served) -> None:
    found = python("litellm_client.py", server, name="CGR_LITELLM_PYTHON")
    check(found["whole"])
    check(found["stream"])


def test_litellm_as_a_proxy(own: Served, tmp_path: Path) -> None:
    with proxy(own, tmp_path) as address:
        env = {"LITELLM_MASTER_KEY": KEY}
        found = python("litellm_client.py", own, address, name="CGR_LITELLM_PYTHON", env=env)
    check(found["whole"])
    check(found["stream"], result=False)
    assert found["stream"]["cgr"] is None  # the proxy drops it in streams; docs/clients.md says so


@contextmanager
def proxy(own: Served, folder: Path) -> Iterator[str]:
    """A LiteLLM proxy in front of the server."""
    program = environment_of("CGR_LITELLM_PYTHON") / "litellm"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    env = os.environ | OFFLINE | {"CGR_ADDRESS": f"{own.address}/v1", "LITELLM_MASTER_KEY": KEY}
    call = [str(program), "--config", str(PROGRAMS / "litellm.yaml"), "--host", "127.0.0.1", "--port", str(port)]
    with (folder / "log").open("w") as log, subprocess.Popen(call, env=env, stdout=log, stderr=log, cwd=folder) as process:
        try:
            until = time.monotonic() + LONG
            while not _is_up(port):
                assert process.poll() is None, (folder / "log").read_text()[-3000:]
                assert time.monotonic() < until
                time.sleep(0.5)
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            process.terminate()


def _is_up(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/health/liveliness", trust_env=False).status_code == 200
    except httpx.HTTPError:
        return False


def test_lm_eval_gives_the_score_of_cgr(loaded: Model, tmp_path: Path) -> None:
    """The same questions, greedily: every answer is the one of `cgr solve`, right or wrong."""
    questions = load_questions("arithmetic", limit=12, seed=5)
    rows = [json.dumps({"question": one.text, "answer": one.gold}) for one in questions]
    (tmp_path / "questions.jsonl").write_text("\n".join(rows))
    with served("--answer-style", "boxed", "--sessions", "4") as server:
        address = f"{server.address}/v1/chat/completions"
        given = f"model={model_of(server)},base_url={address},num_concurrent=4"
        call = [str(environment_of("CGR_CLIENTS_PYTHON") / "lm_eval"), "run", "--model", "local-chat-completions"]
        call += ["--model_args", given, "--tasks", "cgr_arithmetic", "--include_path", str(FOLDER / "lm_eval")]
        call += ["--apply_chat_template", "--output_path", str(tmp_path / "out"), "--log_samples"]
        run(call, {"OPENAI_API_KEY": "none", "HF_HOME": str(tmp_path / "cache")}, tmp_path)
    (results,) = (tmp_path / "out").rglob("results*.json")
    (samples,) = (tmp_path / "out").rglob("samples*.jsonl")
    score = json.loads(results.read_text())["results"]["cgr_arithmetic"]["exact_match,boxed"]
    answers = {
        row["doc"]["question"]: row["filtered_resps"][0] for row in map(json.loads, samples.read_text().splitlines())
    }
    budget = 1024 - 256  # a quarter of max_tokens is reserved for the answer
    own = [loaded.solve(one.text, seed=1234, temperature=0.0, instruction="", budget=budget) for one in questions]
    assert [answers[one.text] for one in questions] == [solution.answer for solution in own]
    assert score == sum(a.answer == q.gold for a, q in zip(own, questions, strict=True)) / len(questions)


def evaluated(folder: Path, *options: str, env: dict[str, str]) -> dict[str, Any]:
    """The log of an evaluation by inspect_ai."""
    call = [str(environment_of("CGR_CLIENTS_PYTHON") / "inspect"), "eval", "inspect_task.py", *options]
    call += ["--display", "plain", "--log-format", "json", "--log-dir", str(folder)]
    run(call, env, PROGRAMS)
    (log,) = folder.glob("*.json")
    found: dict[str, Any] = json.loads(log.read_text())
    assert found["status"] == "success", found.get("error")
    assert found["results"]["scores"][0]["metrics"]["accuracy"]["value"] == 1.0
    return found


@pytest.mark.parametrize("stream", ["false", "true"])
def test_inspect_by_our_provider(own: Served, tmp_path: Path, stream: str) -> None:
    options = ["--model", f"cgr/{model_of(own)}", "-M", "threshold=0.95", "-M", "answer_style=boxed"]
    options += ["-M", f"stream={stream}", "--seed", "3"]
    log = evaluated(tmp_path, *options, env={"CGR_SERVER_URL": f"{own.address}/v1"})
    output = log["samples"][0]["output"]
    assert output["metadata"]["cgr"]["threshold"] == 0.95
    assert output["metadata"]["cgr"]["certainty"] >= 0.95
    assert output["usage"]["reasoning_tokens"] == output["metadata"]["cgr"]["usage"]["thinking_tokens"]


def test_inspect_by_its_openai_compatible_provider(own: Served, tmp_path: Path) -> None:
    env = {"SERVE_API_KEY": "none", "SERVE_BASE_URL": f"{own.address}/v1"}
    log = evaluated(tmp_path, "--model", f"openai-api/serve/{model_of(own)}", "--seed", "3", env=env)
    content = log["samples"][0]["output"]["choices"][0]["message"]["content"]
    assert content[0]["type"] == "reasoning"
    calls = [event["call"] for event in log["samples"][0]["events"] if event["event"] == "model"]
    assert calls[0]["response"]["cgr"]["certainty"] >= 0.99


def test_the_provider_says_that_it_is_no_cgr_server(tmp_path: Path) -> None:
    from tests.server.upstream import MODEL, fake_upstream

    with fake_upstream() as fake:
        env = {"CGR_SERVER_URL": f"{fake.address}/v1"}
        call = [str(environment_of("CGR_CLIENTS_PYTHON") / "inspect"), "eval", "inspect_task.py", "--model", f"cgr/{MODEL}"]
        run([*call, "--display", "plain", "--log-format", "json", "--log-dir", str(tmp_path)], env, PROGRAMS)
    (log,) = tmp_path.glob("*.json")
    assert "have no cgr object" in json.loads(log.read_text())["error"]["message"]
