"""`llama-server:FILE`: llama.cpp's server program started as a child process."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from cgr.engines.base import Engine
from cgr.engines.launch import server
from cgr.engines.launch.server import HOST, Command, LaunchedEngine
from cgr.engines.llama.header import read_head
from cgr.engines.open import ModelOptions, find_model

OPTIONS = server.OPTIONS
SESSION_SLOTS = 2


def open_engine(name: str, options: ModelOptions) -> Engine:
    """llama-server with this GGUF file. A session has two slots: one thinks, one is probed. They are named in each request:
    a slot whose request was cancelled is free a moment later, and the server would choose one that has to read the thinking
    again."""
    command = llama_command(
        find_model(name),
        slots=SESSION_SLOTS * options.sessions,
        context=options.session_context,
        threads=options.threads,
    )
    return LaunchedEngine(replace(command, session_slots=SESSION_SLOTS), options)


def llama_command(path: Path, *, slots: int, context: int, threads: int | None = None) -> Command:
    """The command. $CGR_LLAMA_SERVER may name the program, $CGR_LLAMA_SERVER_FLAGS further flags."""
    program = os.environ.get("CGR_LLAMA_SERVER") or "llama-server"
    words = [program, "--model", str(path), "--host", HOST, "--parallel", str(slots), "--ctx-size", str(slots * context)]
    words += ["--threads", str(threads)] if threads else []
    words += os.environ.get("CGR_LLAMA_SERVER_FLAGS", "").split()
    defaults = read_head(path).defaults if path.is_file() else {}
    return Command(tuple(words), str(path), "llama-server", _environment(), "LLAMA_API_KEY", defaults)


def _environment() -> dict[str, str]:
    """No store of old prompts beside the slots, unless the user asks for one: probes fill its 8 GB in minutes. It is a
    variable and not a flag, because older versions refuse an unknown flag."""
    return {"LLAMA_ARG_CACHE_RAM": os.environ.get("LLAMA_ARG_CACHE_RAM", "0")}
