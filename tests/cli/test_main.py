"""The command `cgr`: help, version, its commands, and what it does not import."""

from __future__ import annotations

import pytest

import cgr
from cgr.cli.main import VERBS
from tests.support import command

HEAVY = {"xllamacpp", "aiohttp", "httpx", "torch", "numpy", "matplotlib", "jinja2", "plotly", "transformers", "rich"}


def test_help_imports_no_engine() -> None:
    done = command("--help", env={"PYTHONPROFILEIMPORTTIME": "1"})
    modules = {line.rsplit("|", 1)[1].strip().split(".")[0] for line in done.stderr.splitlines() if "|" in line}
    assert {"cgr", "click"} <= modules
    assert not modules & HEAVY
    assert done.returncode == 0


@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_help_lists_every_command(flag: str) -> None:
    done = command(flag)
    assert done.returncode == 0
    for verb in VERBS:
        assert f"\n  {verb} " in done.stdout
    assert len(VERBS) == 14


def test_the_version() -> None:
    assert command("--version").stdout.strip() == f"cgr, version {cgr.__version__}"


def test_help_of_solve_shows_the_defaults() -> None:
    done = command("solve", "--help")
    text = " ".join(done.stdout.split())
    assert done.returncode == 0
    for option in (
        "--model", "--rule", "--threshold", "--interval", "--budget", "--max-answer-tokens", "--aggregate", "--temperature",
        "--top-p", "--seed", "--at-budget", "--at-end-of-thinking", "--prefix", "--close-think", "--overlap", "--json",
    ):  # fmt: skip
        assert option in text
    for default in (
        "[default: cgr]",
        "[default: 0.99,",
        "[default: min]",
        "[default: 0.6]",
        "[default: 1000,",
        "[default: 32000,",
    ):
        assert default in text


def test_an_unknown_command_suggests_the_nearest() -> None:
    done = command("sovle")
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        "error: There is no command called 'sovle'.",
        done.stderr.splitlines()[1],
    ]
    assert done.stderr.splitlines()[1].startswith("hint:  Did you mean 'solve'?")


def test_without_a_command_the_help_is_shown() -> None:
    done = command()
    assert "Usage: cgr" in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
