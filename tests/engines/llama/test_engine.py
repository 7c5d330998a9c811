"""Our own llama.cpp server: for us alone, silent, gone with the process; and files that it cannot load."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
import pytest

from cgr import Model, open_model
from cgr.engines.base import Sampling
from cgr.engines.llama.engine import LlamaEngine
from cgr.engines.llama.header import read_head
from cgr.engines.open import ModelOptions
from cgr.errors import DoesNotFit, NotAModel, NoThinkTags, UsageError
from cgr.solve import find_model
from tests.support import QUESTION, environment, python

POSTS = (
    "/completion",
    "/completions",
    "/v1/completions",
    "/v1/chat/completions",
    "/tokenize",
    "/detokenize",
    "/infill",
    "/embedding",
)
GETS = ("/props", "/slots", "/metrics", "/lora-adapters")


def address(engine: LlamaEngine) -> str:
    return str(engine.address)


@pytest.mark.parametrize(
    "headers", [{}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic x"}, {"X-Api-Key": "x"}]
)
async def test_without_the_key_the_port_is_closed(engine: LlamaEngine, headers: dict[str, str]) -> None:
    async with aiohttp.ClientSession(address(engine), headers=headers) as stranger:
        for path in POSTS:
            async with stranger.post(path, json={"prompt": "a", "content": "a", "n_predict": 1}) as reply:
                assert reply.status == 401, path
        for path in GETS:
            async with stranger.get(path) as reply:
                assert reply.status == 401, path


async def test_with_the_key_it_is_open(engine: LlamaEngine) -> None:
    """So that the refusals above are the key's doing."""
    headers = {"Authorization": f"Bearer {engine._key}"}
    async with (
        aiohttp.ClientSession(address(engine), headers=headers) as client,
        client.post("/tokenize", json={"content": "a"}) as reply,
    ):
        assert reply.status == 200


async def test_only_loopback_is_listened_to(engine: LlamaEngine) -> None:
    assert urlsplit(address(engine)).hostname in ("127.0.0.1", "localhost", "::1")


async def test_no_page_of_another_site_may_read_it(engine: LlamaEngine) -> None:
    headers = {"Authorization": f"Bearer {engine._key}", "Origin": "https://elsewhere.example"}
    async with (
        aiohttp.ClientSession(address(engine), headers=headers) as page,
        page.post("/tokenize", json={"content": "a"}) as reply,
    ):
        assert reply.headers.get("access-control-allow-origin", "") in ("", "null")


def test_keys_differ(loaded: Model) -> None:
    with open_model() as other:
        assert isinstance(other.engine, LlamaEngine)
        assert isinstance(loaded.engine, LlamaEngine)
        assert len(other.engine._key) >= 32
        assert other.engine._key != loaded.engine._key


SILENT = """
import json, sys, urllib.error, urllib.request, cgr
model = cgr.open_model(sessions=2, overlap=True)
solution = model.solve(sys.argv[1], budget=64, overlap=True)
assert solution.thinking
known = {"Authorization": "Bearer " + model.engine._key}
bodies = ({"prompt": "a", "n_predict": 1}, {"prompt": {}}, None)
requests = [("/completion", body, headers) for body in bodies for headers in ({}, known)]
for path, body, headers in [*requests, ("/nowhere", None, {})]:
    data = None if path == "/nowhere" else json.dumps(body).encode()
    try:
        urllib.request.urlopen(urllib.request.Request(model.engine.address + path, data, headers)).read()
    except urllib.error.HTTPError as error:
        error.close()
"""


@pytest.mark.parametrize("ending", ["model.close()", "sys.exit(0)"])
def test_the_server_is_silent_and_goes_with_the_process(ending: str) -> None:
    done = python(SILENT + ending, QUESTION)
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)


CRASH = """
import os, resource, cgr
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
model = cgr.open_model()
print(model.engine.address, flush=True)
input()
os.abort()
"""


@pytest.mark.parametrize("killed", [False, True])
def test_after_a_crash_nothing_is_left(killed: bool) -> None:
    crashing = subprocess.Popen(
        [sys.executable, "-c", CRASH],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=environment({}),
    )
    assert crashing.stdout is not None
    where = urlsplit(crashing.stdout.readline().strip())
    assert where.hostname is not None
    assert where.port is not None
    with socket.create_connection((where.hostname, where.port)):
        pass
    if killed:
        crashing.kill()
    _, errors = crashing.communicate("\n")
    assert crashing.returncode == (-signal.SIGKILL if killed else -signal.SIGABRT)
    assert errors == ""
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((where.hostname, where.port))
    with pytest.raises(ProcessLookupError):
        os.killpg(crashing.pid, 0)


async def test_the_prompt_ends_inside_the_thinking(engine: LlamaEngine) -> None:
    ids = await engine.prompt("Why?")
    assert ids[-1] == engine.head.control_ids["<think>"]
    assert "Why?" in await engine.decode(ids)


async def test_texts_are_tokenised_on_their_own(engine: LlamaEngine) -> None:
    prefix = "Final Answer: \\boxed{"
    ids = await engine.encode(prefix)
    assert await engine.decode(ids) == prefix
    assert await engine.encode("</think>") == (engine.head.control_ids["</think>"],)
    assert await engine.encode("</think>" + prefix) == (*await engine.encode("</think>"), *ids)


async def test_what_does_not_fit_is_said_before_it_is_computed(engine: LlamaEngine) -> None:
    with pytest.raises(DoesNotFit, match="but the context has") as caught:
        await engine.open("Why? " * engine.info.context, Sampling(), room=10)
    assert "Lower the budget by at least" in caught.value.hint


def test_a_file_cut_in_its_weights(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Its head is whole, so only llama.cpp can tell; it must tell us, and nobody else."""
    path = tmp_path / "cut.gguf"
    data = find_model(None).read_bytes()
    path.write_bytes(data[: len(data) - 100_000])
    assert read_head(path).context
    with pytest.raises(NotAModel, match="cannot load"):
        open_model(str(path))
    assert capfd.readouterr() == ("", "")


def test_a_model_without_think_tags(tmp_path: Path) -> None:
    path = tmp_path / "plain.gguf"
    path.write_bytes(find_model(None).read_bytes().replace(b"think>", b"thank>"))
    with pytest.raises(NoThinkTags, match=r"plain\.gguf has no think tags") as caught:
        open_model(str(path))
    assert "--think-tags" in caught.value.hint


def test_tags_can_be_named(tmp_path: Path) -> None:
    path = tmp_path / "plain.gguf"
    path.write_bytes(find_model(None).read_bytes().replace(b"think>", b"thank>"))
    with open_model(str(path), think_tags="<thank>,</thank>") as model:
        assert model.solve(QUESTION, budget=32, rule="fixed-budget").thinking
        assert (model.engine.info.open_tag, model.engine.info.close_tag) == ("<thank>", "</thank>")


@pytest.mark.parametrize("threads", [0, -1])
def test_threads(threads: int) -> None:
    with pytest.raises(UsageError, match="threads"):
        LlamaEngine(find_model(None), ModelOptions(threads=threads))
