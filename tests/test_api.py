"""The public API, pinned: a name that comes or goes is a decision, not an accident."""

from __future__ import annotations

import inspect
from importlib.metadata import version

import cgr

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
