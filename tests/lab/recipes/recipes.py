"""Shared by the tests of recipes: the recipes of the repository, and the command with its output and imports."""

from __future__ import annotations

import io
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

from cgr.cli.main import run
from tests.support import command

FOLDER = Path(__file__).parents[3] / "recipes"
FILES = sorted(FOLDER.glob("*.toml"))
MODELS = {
    "deepseek-r1-distill-qwen-14b": "deepseek-ai/DeepSeek-R1-Distill-Qwen-14B",
    "deepseek-r1-distill-llama-70b": "deepseek-ai/DeepSeek-R1-Distill-Llama-70B",
    "phi-4-reasoning-plus": "microsoft/Phi-4-reasoning-plus",
}


def cgr(*arguments: str | Path) -> tuple[int, str, str]:
    """Run the command in this process: its exit code, standard output and standard error."""
    with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as err:
        code = run([str(argument) for argument in arguments])
    return code, out.getvalue(), err.getvalue()


def modules_of(*arguments: str | Path) -> set[str]:
    """The names of all modules that the command imports."""
    done = command(*map(str, arguments), env={"PYTHONPROFILEIMPORTTIME": "1"})
    return {line.rsplit("|", 1)[1].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}
