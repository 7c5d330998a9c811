"""The public API, pinned: a name that comes or goes is a decision, not an accident."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from dataclasses import fields
from importlib.metadata import version
from pathlib import Path
from typing import Any, get_type_hints

import pytest

import cgr
from cgr.engines.completions.http import Observe
from cgr.engines.completions.policy import RetryPolicy
from cgr.engines.open import ModelKeywords, ModelOptions
from cgr.settings import Settings, SolveOptions

PUBLIC = [
    "GIVE_UP",
    "GO_ON",
    "STOP",
    "CgrError",
    "Decided",
    "Decision",
    "Event",
    "KeepThinking",
    "Model",
    "Probe",
    "Probed",
    "Question",
    "Rule",
    "Seen",
    "Settings",
    "Solution",
    "Thinking",
    "Token",
    "Trace",
    "asolve",
    "known_rules",
    "next_multiple",
    "open_model",
    "rule",
    "solve",
]


def test_the_public_names() -> None:
    assert cgr.__all__ == PUBLIC
    assert all(hasattr(cgr, name) for name in PUBLIC)


def test_nothing_else_looks_public() -> None:
    """Submodules aside, what `dir(cgr)` shows is what is promised."""
    shown = {name for name, value in vars(cgr).items() if not name.startswith("_") and not inspect.ismodule(value)}
    assert shown <= set(PUBLIC)


def test_the_version_is_that_of_the_distribution() -> None:
    assert cgr.__version__ == version("certainty-guided-reasoning")


def test_solve_takes_a_question_and_a_model() -> None:
    for function in (cgr.solve, cgr.asolve):
        assert list(inspect.signature(function).parameters) == ["question", "model", "on_event", "options"]
    assert inspect.iscoroutinefunction(cgr.asolve)
    assert inspect.iscoroutinefunction(cgr.Model.asolve)


# what `open_model` accepts beside the type of the field
WIDER = {
    "base_url": "str | collections.abc.Sequence[str]",
    "dialect": "collections.abc.Sequence[str]",
    "overlap": "bool | None",
}
USER = """
import cgr

solution = cgr.solve("What is 2+2?", threshold=0.95, budget=512, at_budget="abstain", parameters={"agree": 3})
answer: str | None = solution.answer


async def ask() -> float:
    async with cgr.open_model("model.gguf", sessions=2, base_url="http://localhost:8000/v1") as model:
        async for event in model.astream("What is 2+2?", seed=1):
            print(event)
        return (await model.asolve("What is 2+2?", rule="deer", wait=5.0)).certainty
"""
WRONG = (
    "import cgr\n"
    "cgr.solve('?', treshold=0.95)\n"
    "cgr.open_model(session=2)\n"
    "cgr.open_model().solve('?', at_budget='stop')\n"
    "cgr.open_model().astream('?', seed='one')\n"
)


def _types(hints: dict[str, Any]) -> dict[str, str]:
    return {name: hint.__name__ if isinstance(hint, type) else str(hint) for name, hint in hints.items()}


@pytest.mark.parametrize(("keywords", "options"), [(SolveOptions, Settings), (ModelKeywords, ModelOptions)])
def test_the_keywords_are_the_fields(keywords: type, options: type) -> None:
    scope = {"RetryPolicy": RetryPolicy, "Observe": Observe}
    typed, declared = (_types(get_type_hints(one, localns=scope)) for one in (keywords, options))
    declared.pop("model", None)  # the first argument
    assert list(typed) == [one.name for one in fields(options) if one.name in declared]
    wider = WIDER if options is ModelOptions else {}
    assert typed == declared | wider


def test_a_type_checker_knows_the_keywords(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    (tmp_path / "user.py").write_text(USER)
    (tmp_path / "wrong.py").write_text(WRONG)
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--cache-dir", str(tmp_path / "cache")]
    command += ["--ignore-missing-imports", "user.py", "wrong.py"]
    environment = os.environ | {"MYPYPATH": str(Path(cgr.__file__).parents[1])}
    said = subprocess.run(command, check=False, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600)
    told = said.stdout
    errors = [
        line.split(": error: ") for line in told.splitlines() if ": error: " in line and "/" not in line.split(":")[0]
    ]
    assert [place for place, _ in errors] == ["wrong.py:2", "wrong.py:3", "wrong.py:4", "wrong.py:5"], told
    for name, (_, problem) in zip(("treshold", "session", "at_budget", "seed"), errors, strict=True):
        assert f'"{name}"' in problem
