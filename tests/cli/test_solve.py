"""`cgr solve`, called as a user calls it: output, options, interruption, closed pipes."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from cgr import Model
from cgr.cli.main import run
from cgr.model.problems import is_held_out
from cgr.rules import make_rule
from cgr.solve import find_model
from tests.support import CGR, JSON_KEYS, QUESTION, command, environment, python

SHORT = ("--budget", "48", "--interval", "16")


def solve_json(*arguments: str, stdin: str = "") -> dict[str, Any]:
    done = command("solve", *arguments, "--json", stdin=stdin)
    assert (done.returncode, done.stderr) == (0, "")
    solution: dict[str, Any] = json.loads(done.stdout)
    assert len(done.stdout.splitlines()) == 1
    return solution


def test_as_json() -> None:
    solution = solve_json(QUESTION, *SHORT, "--seed", "3", "--threshold", "0.9")
    assert solution.keys() >= JSON_KEYS
    assert (solution["question"], solution["seed"], solution["threshold"]) == (QUESTION, 3, 0.9)
    assert (solution["budget"], solution["interval"], solution["rule"]) == (48, 16, "cgr")
    assert (solution["model"], solution["engine"]) == ("embedded", "llama.cpp")
    assert solution["stop_cause"] in ("certainty", "end_of_thinking", "budget")
    assert len(solution["probes"]) >= 1
    for probe in solution["probes"]:
        assert probe.keys() >= {"at", "answer", "certainty", "closed"}


def test_the_question_from_standard_input(loaded: Model) -> None:
    piped = solve_json("-", *SHORT, stdin=QUESTION + "\n")
    given = loaded.solve(QUESTION, budget=48, interval=16)
    assert piped["question"].strip() == QUESTION
    assert (piped["thinking"], piped["answer"]) == (given.thinking, given.answer)


def test_without_a_question_the_embedded_model_takes_one_of_its_problems() -> None:
    done = command("solve", *SHORT)
    assert (done.returncode, done.stderr) == (0, "")
    note, question = done.stdout.splitlines()[:2]
    assert "embedded model's problems" in note
    assert is_held_out(question)
    assert "\nCorrect    " in done.stdout
    assert "embedded model knows three families" not in done.stdout
    assert solve_json("--seed", "1", "--rule", "no-thinking")["question"] != question


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_without_a_question_it_stops_early_and_says_what_full_thinking_takes(loaded: Model, seed: int) -> None:
    shown = command("solve", "--seed", str(seed)).stdout
    question = shown.splitlines()[1]
    stopped, full = loaded.solve(question, seed=seed), loaded.solve(question, seed=seed, rule="fixed-budget")
    assert stopped.stop_cause == "certainty"
    assert f"\nThinking   {stopped.thinking_tokens} tokens of the budget of 2048\n" in shown
    saved = full.thinking_tokens - stopped.thinking_tokens
    assert saved > 0
    last = shown.splitlines()[-1]
    assert last.startswith(f"In full    the same thinking takes {full.thinking_tokens} tokens: {saved} saved (")
    assert last.endswith(f", {saved - stopped.probe_tokens} after those of the probes")


def test_what_the_budget_allowed_where_full_thinking_is_not_known() -> None:
    shown = command("solve", QUESTION, "--threshold", "0.01").stdout
    assert "because the certainty reached 0.01" in shown
    assert shown.splitlines()[-1] == "In full    not known: the budget allowed 2048 tokens"
    natural = command("solve", QUESTION, "--rule", "fixed-budget").stdout
    assert natural.splitlines()[-1] == "In full    the model ended its thinking by itself: nothing was saved"


def test_a_question_outside_of_the_embedded_models_families() -> None:
    shown = command("solve", "What is 17 times 23?", "--threshold", "0.01").stdout
    note = "The embedded model knows three families of problems; this question is none of them"
    assert note in shown.split("\nAnswer ")[0]
    assert "(not to be trusted: see the note above)" in shown
    assert "which means nothing here" in shown
    assert "the model was certain" not in shown
    assert solve_json("What is 17 times 23?", *SHORT)["in_domain"] is False
    assert solve_json(QUESTION, *SHORT)["in_domain"] is True
    assert note not in command("solve", QUESTION, *SHORT).stdout


def test_plain_text_without_a_terminal() -> None:
    done = command("solve", QUESTION, *SHORT, "--full", "--rule", "cgr", "--threshold", "1")
    assert (done.returncode, done.stderr) == (0, "")
    assert "\x1b" not in done.stdout
    assert done.stdout.startswith(QUESTION + "\n")
    assert "? " in done.stdout
    for line in ("Answer     ", "Certainty  ", "Stopped    because ", "Thinking   ", "Probes     ", "Answering  "):
        assert f"\n{line}" in done.stdout
    assert "tokens of the budget of 48" in done.stdout
    assert "\nCorrect " not in done.stdout


@pytest.mark.parametrize("overlap", [False, True])
def test_all_of_the_thinking_is_shown(loaded: Model, overlap: bool) -> None:
    options = (*SHORT, "--max-answer-tokens", "1", *(("--overlap",) if overlap else ()))
    thinking = loaded.solve(QUESTION, budget=48, interval=16, max_answer_tokens=1).thinking
    shown = command("solve", QUESTION, *options).stdout.split("\n\nAnswer  ")[0].splitlines()[3:]
    lines = [line for line in shown if not line.startswith("  ? ")]
    assert "".join(lines) == thinking.replace("\n", "")


@pytest.mark.parametrize(
    ("options", "lines"),
    [
        (("cgr",), ("a probe every 16 tokens", "(threshold 0.99)")),
        (("dynasor", "--set", "agree=1"), ("because 1 probe gave", "a probe every 32 tokens")),
        (("no-thinking",), ("no probes,", "Stopped    because this rule does not let the model think", "Probes     none")),
        (("deer",), ('a probe before each "Wait" or "Alternatively"', "(threshold 0.95)")),
        (
            ("deepconf", "--set", "floor=1000", "--set", "window=8"),
            ("below 1000", "Certainty  unknown: nothing was probed"),
        ),
        (("give-up", "--set", "patience=1", "--set", "floor=1"), ("because 1 probe was less certain than 1",)),
    ],
)
def test_what_is_said_under_each_rule(
    options: tuple[str, ...], lines: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["solve", QUESTION, *SHORT, "--rule", *options]) == 0
    told = capsys.readouterr().out
    assert [line for line in lines if line not in told] == []
    assert ("threshold" in told) == ("threshold" in make_rule(options[0]).parameters())


def test_colours_on_a_terminal() -> None:
    ours, theirs = pty.openpty()
    env = environment({"TERM": "xterm-256color", "COLUMNS": "100"}) | {"NO_COLOR": ""}
    with subprocess.Popen([CGR, "solve", QUESTION, *SHORT], stdout=theirs, stderr=theirs, stdin=theirs, env=env) as shown:
        os.close(theirs)
        text = _read_all(ours)
    os.close(ours)
    assert shown.returncode == 0
    assert "\x1b[2m" in text  # thinking is dimmed
    assert "certainty" in text
    assert "Answer" in text


def _read_all(terminal: int) -> str:
    data = b""
    while True:
        try:
            more = os.read(terminal, 65536)
        except OSError:  # the other end of the terminal is closed
            return data.decode()
        if not more:
            return data.decode()
        data += more


OPTIONS: list[tuple[tuple[str, ...], dict[str, object]]] = [
    (("--rule", "no-thinking"), {"thinking_tokens": 0, "stop_cause": "budget", "probes": []}),
    (("--rule", "budget-forcing", "--budget", "16"), {"thinking_tokens": 16, "rule": "budget-forcing", "probes": []}),
    (
        (
            "--budget",
            "16",
            "--max-answer-tokens",
            "1",
            "--at-budget",
            "abstain",
            "--close-think",
            "always",
            "--threads",
            "1",
        ),
        {"abstained": True, "answer": None, "answer_tokens": 1},
    ),
    (
        (
            "--budget",
            "16",
            "--aggregate",
            "mean",
            "--overlap",
            "--temperature",
            "0",
            "--top-p",
            "0.9",
            "--prefix",
            "\\boxed{",
        ),
        {"budget": 16, "abstained": False},
    ),
    (("--budget", "16", "--model", str(find_model(None)), "--think-tags", "<think>"), {"model": str(find_model(None))}),
]


@pytest.mark.parametrize(("options", "expected"), OPTIONS, ids=[" ".join(row[0]) for row in OPTIONS])
def test_options(options: tuple[str, ...], expected: dict[str, object]) -> None:
    solution = solve_json(QUESTION, *options)
    assert {name: solution[name] for name in expected} == expected


@pytest.mark.parametrize("from_file", [False, True])
def test_rule_files_are_loaded_only_if_the_rule_is_one(tmp_path: Path, from_file: bool) -> None:
    (tmp_path / "mine.json").write_text('{"rule": "cgr", "parameters": {"threshold": 0.5}}')
    rule = str(tmp_path / "mine.json") if from_file else "cgr"
    code = "import sys; from cgr.cli.main import run; run(sys.argv[1:]); print('cgr.rules.files' in sys.modules)"
    solution, loaded = python(code, "solve", QUESTION, *SHORT, "--rule", rule, "--json").stdout.splitlines()
    assert json.loads(solution)["threshold"] == (0.5 if from_file else 0.99)
    assert loaded == str(from_file)


def interrupted(arguments: Sequence[str], when: str) -> tuple[int, str, str]:
    """Exit code, output and errors after Ctrl-C, which is sent as soon as `when` was printed."""
    with subprocess.Popen(
        [CGR, "solve", QUESTION, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment({}),
    ) as solving:
        assert solving.stdout is not None
        seen = ""
        while when not in seen:
            seen += (more := solving.stdout.read(1))
            assert more, seen
        solving.send_signal(signal.SIGINT)
        rest, errors = solving.communicate()
    return solving.returncode, seen + rest, errors


def test_interrupted_before_the_first_probe(loaded: Model) -> None:
    large = str(loaded.engine.info.context - 256)
    code, _, errors = interrupted(["--rule", "budget-forcing", "--budget", large], f"budget {large}\n\n")
    assert code == 130
    assert errors == "Interrupted before the first probe: there is no answer yet.\n"


def test_interrupted_after_a_probe(loaded: Model) -> None:
    """An answer of one token never closes, so that the rule never stops."""
    options = [
        "--interval",
        "1",
        "--max-answer-tokens",
        "1",
        "--rule",
        "cgr-forced",
        "--budget",
        str(loaded.engine.info.budget),
    ]
    code, shown, errors = interrupted(options, "  ?      2")
    assert code == 130
    assert errors.startswith("Interrupted. The last probe, after ")
    assert "with certainty" in errors
    assert len(errors.splitlines()) == 1
    assert "Answer     " not in shown


@pytest.mark.parametrize("arguments", [("solve", *SHORT), ("solve", "--json", *SHORT), ("rules",)], ids=" ".join)
def test_a_closed_pipe(arguments: tuple[str, ...]) -> None:
    """As in `cgr solve | head -1`."""
    read, write = os.pipe()
    os.close(read)
    with subprocess.Popen([CGR, *arguments], stdout=write, stderr=subprocess.PIPE, text=True, env=environment({})) as piped:
        os.close(write)
        _, errors = piped.communicate()
    assert errors == ""


def test_a_pipe_that_closes_after_a_line() -> None:
    with subprocess.Popen(
        [CGR, "solve", QUESTION], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment({})
    ) as piped:
        assert piped.stdout is not None
        assert piped.stderr is not None
        assert piped.stdout.readline() == QUESTION + "\n"
        piped.stdout.close()
        assert piped.stderr.read() == ""
