"""A server started for a model as a child process, waited for, and ended with the engine or with this process."""

from __future__ import annotations

import asyncio
import os
import re
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
from typing import Any

from cgr.engines.completions.engine import CompletionsEngine, Connected, own_slots
from cgr.engines.completions.http import Fault, Server
from cgr.engines.completions.policy import RetryPolicy
from cgr.engines.launch import watchdog
from cgr.engines.open import ModelOptions
from cgr.errors import EngineError, UsageError

HOST = "127.0.0.1"
OPTIONS = frozenset({"tokenizer", "dialect", "chunk"})
POLL_SECONDS = 0.25
START_SECONDS = 1800.0  # a large model takes long to load
LOG_BYTES = 2000  # of the end of the server's output, for an error message
ERROR_LINE = re.compile(r"\b\w*(error|exception)\b", re.IGNORECASE)
HEALTH_CHECK = RetryPolicy(connect=5.0, first=5.0)


@dataclass(frozen=True, slots=True)
class Command:
    """How to start a server. `served`: the name of its model; `key_variable`: where the server reads its API key;
    `defaults`: what the model's own files say of interval, budget and answer length. `session_slots`: slots that each
    session has for itself; 0: the server chooses."""

    words: tuple[str, ...]
    served: str | None
    name: str
    environment: Mapping[str, str] = field(default_factory=dict)
    key_variable: str = ""
    defaults: Mapping[str, int] = field(default_factory=dict)
    session_slots: int = 0


class ServerProcess:
    """A running server with an API key of its own."""

    def __init__(self, command: Command) -> None:
        self.command, self.key = command, secrets.token_urlsafe(32)
        port = free_port()
        self.address = f"http://{HOST}:{port}"
        words = [sys.executable, watchdog.__file__, _program(command), *command.words[1:], "--port", str(port)]
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the process
        self._process = subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=self._log,
            stderr=self._log,
            env={**os.environ, **command.environment, command.key_variable: self.key},
            start_new_session=True,
        )

    async def wait(self, seconds: float = START_SECONDS) -> None:
        """Wait until it is healthy. If it ends before, the error quotes its output."""
        until, server = time.monotonic() + seconds, Server(self.address, self.key, HEALTH_CHECK)
        try:
            while not await _is_healthy(server):
                if self._process.poll() is not None:
                    message = f"{self.command.name} ended while it started: {self._error_line()}"
                    raise EngineError(message, "Read its message.")
                if time.monotonic() > until:
                    self.end()
                    message = f"{self.command.name} was not ready after {seconds:g} seconds."
                    raise EngineError(message, "Is the model too large?")
                await asyncio.sleep(POLL_SECONDS)
        finally:
            await server.close()

    def _error_line(self) -> str:
        self._log.seek(max(self._log.seek(0, os.SEEK_END) - LOG_BYTES, 0))
        lines = self._log.read().decode("utf-8", errors="replace").strip().splitlines()
        errors = [line for line in lines if ERROR_LINE.search(line)]
        return (errors or lines or ["it wrote nothing"])[-1].strip()

    def end(self) -> None:
        """End the server: its watchdog asks it to end, and kills it if it does not."""
        if self._process.stdin and not self._process.stdin.closed:
            self._process.stdin.close()
        self._process.wait()
        self._log.close()


async def _is_healthy(server: Server) -> bool:
    try:
        return await server.is_up("/health")
    except Fault:
        return False


class LaunchedEngine(CompletionsEngine):
    """An engine on a server that is started by `connect` and ends when the engine is no longer used."""

    def __init__(self, command: Command, options: ModelOptions) -> None:
        _program(command)  # a missing program is an error at once
        super().__init__((), replace(options, model=command.served))
        self.command = command
        self.policy = replace(self.policy, start=None)  # it is known to run, and its first reply may take long

    async def _connect(self) -> Connected:
        process = await asyncio.to_thread(ServerProcess, self.command)
        self.end = weakref.finalize(self, process.end)
        self.addresses, self.options = (process.address,), replace(self.options, api_key=process.key)
        try:
            await process.wait()
            connected = await super()._connect()
        except BaseException:
            self.end()
            raise
        defaults: dict[str, Any] = dict(self.command.defaults)
        places = connected.places
        if self.command.session_slots:
            places = own_slots(len(places), 1, self.command.session_slots)
        return replace(connected, info=replace(connected.info, **defaults), places=places)


def _program(command: Command) -> str:
    found = shutil.which(command.words[0])
    if found is None:
        raise UsageError(
            f"{command.name} needs {command.words[0]}, which is not installed.",
            "Install it, or name it: CGR_LLAMA_SERVER=/path/to/llama-server, CGR_VLLM_PYTHON=/path/to/python.",
        )
    return found


def free_port() -> int:
    """A port that nothing listens on."""
    with socket.socket() as trial:
        trial.bind((HOST, 0))
        port: int = trial.getsockname()[1]
        return port
