"""Shared by the tests of recipes: those of the repository, and the command, with what it said and imported."""

from __future__ import annotations

import io
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

from cgr.cli.main import run
from tests.support import command

FOLDER = Path(__file__).parents[2] / "recipes"
FILES = sorted(FOLDER.glob("*.toml"))
MODELS = {
    "deepseek-r1-distill-qwen-14b": "deepseek-ai/DeepSeek-R1-Distill-Qwen-14B",
    "deepseek-r1-distill-llama-70b": "deepseek-ai/DeepSeek-R1-Distill-Llama-70B",
    "phi-4-reasoning-plus": "microsoft/Phi-4-reasoning-plus",
}


def cgr(*arguments: str | Path) -> tuple[int, str, str]:
    """The command without a process of its own: its exit code, and what it said where."""
    with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as err:
        code = run([str(argument) for argument in arguments])
    return code, out.getvalue(), err.getvalue()


def modules_of(*arguments: str | Path) -> set[str]:
    """Everything that the command imports."""
    done = command(*map(str, arguments), env={"PYTHONPROFILEIMPORTTIME": "1"})
    return {line.rsplit("|", 1)[1].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}
