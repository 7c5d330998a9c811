"""The command `cgr`: help, version, its commands, and what it does not import."""

from __future__ import annotations

import importlib
from itertools import pairwise

import click
import pytest

import cgr
from cgr.cli.main import MODULES, VERBS
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
    assert len(VERBS) == 18


def test_the_command_alone_prints_the_help() -> None:
    done = command()
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == command("--help").stdout


@pytest.mark.parametrize("verb", VERBS)
def test_help_texts(verb: str) -> None:
    """No word twice, no empty help, and every text ends as a sentence or with its default."""
    done = command(verb, "--help")
    text = " ".join(done.stdout.split())
    assert done.returncode == 0
    assert [pair for pair in pairwise(text.split()) if pair[0] == pair[1] and pair[0].isalpha()] == []
    assert " 1 times" not in text
    loaded: click.Command = importlib.import_module(f"cgr.cli.{MODULES.get(verb, verb)}").command
    for option in loaded.params:
        if isinstance(option, click.Option) and not option.hidden:
            assert option.help, option.name
            assert option.help[0].isupper() or option.name == "rule", option.name
            assert option.help.rstrip().endswith((".", "]")), option.name


def test_completion_in_a_shell() -> None:
    """As docs/command-line.md says: click's own completion, for commands, options and the names of rules."""
    assert "_CGR_COMPLETE=bash_complete" in command(env={"_CGR_COMPLETE": "bash_source"}).stdout
    for words, found in (
        ("cgr r", ["run", "report", "runs", "rules"]),
        ("cgr solve --rule d", ["deepconf", "deer", "dynasor"]),
        ("cgr probe --pr", ["--prefix", "--probes"]),
    ):
        given = {"_CGR_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)}
        assert [line.split(",")[1] for line in command(env=given).stdout.splitlines()] == found


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
        "[default: the model's own, or 1000]",
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
