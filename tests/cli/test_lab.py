"""`cgr generate`, `probe`, `export` and `import`, called as a user calls them: also killed, interrupted and resumed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cgr.lab.store import NotARun, Store
from cgr.lab.store.recorded import RecordedTrace
from tests.support import command, environment

RECORDED = "recorded\n"
# The command, which after its first trace says so and waits for the end of its standard input: it cannot finish early.
HOLD_AFTER_FIRST_TRACE = """
import sys
from cgr.cli import main
from cgr.lab.store import Store

add_trace = Store.add_trace

def add_and_wait(store, *arguments, **options):
    Store.add_trace = add_trace
    add_trace(store, *arguments, **options)
    print("recorded", flush=True)
    sys.stdin.read()

Store.add_trace = add_and_wait
main(sys.argv[1:])
"""
MADE = ("--questions", "arithmetic", "--limit", "3", "--seeds", "2", "--budget", "64", "--interval", "16")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole run, made without interruption."""
    folder = tmp_path_factory.mktemp("runs") / "whole"
    done = command("generate", *MADE, "--out", str(folder), "--json")
    assert done.returncode == 0, done.stderr
    return folder


def recorded_traces(folder: Path, probe_set: str | None = None) -> list[RecordedTrace]:
    with Store.open(folder) as store:
        return list(store.recorded(probe_set, whole=True))


def count(folder: Path) -> int:
    try:
        with Store.open(folder) as store:
            return len(store.made())
    except NotARun:
        return 0


def stopped_midway(folder: Path, how: signal.Signals, *arguments: str) -> tuple[int, str]:
    """Exit code and standard error of the command, stopped by a signal right after its first trace is in the store."""
    call = [sys.executable, "-c", HOLD_AFTER_FIRST_TRACE, *arguments, "--out", str(folder)]
    pipe = subprocess.PIPE
    with subprocess.Popen(call, stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=environment({})) as process:
        assert process.stdout is not None
        recorded = RECORDED in process.stdout
        process.send_signal(how)
        _, errors = process.communicate()  # closes its standard input: the command goes on, with the signal pending
    assert recorded, errors
    return process.returncode, errors


def same_traces(here: list[RecordedTrace], there: list[RecordedTrace]) -> None:
    assert [(one.question_id, one.seed, one.ids, one.text, one.ended, one.written, one.final.answer) for one in here] == [
        (one.question_id, one.seed, one.ids, one.text, one.ended, one.written, one.final.answer) for one in there
    ]


def test_generating_again_makes_nothing_new(run: Path) -> None:
    done = command("generate", *MADE, "--out", str(run))
    assert done.returncode == 0
    assert done.stdout.startswith(f"6 of 6 traces are in {run}, 0 of them new.")
    assert done.stderr == ""


def test_after_a_kill_the_same_command_continues_with_the_same_traces(run: Path, tmp_path: Path) -> None:
    folder, arguments = tmp_path / "killed", ("generate", *MADE, "--sessions", "1")
    code, _ = stopped_midway(folder, signal.SIGKILL, *arguments)
    assert code == -signal.SIGKILL
    assert count(folder) == 1
    done = command(*arguments, "--out", str(folder), "--json")
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert (summary["traces"], summary["new"], summary["failed"]) == (6, 5, 0)
    same_traces(recorded_traces(folder), recorded_traces(run))


def test_after_ctrl_c_the_number_of_traces_is_printed_and_the_same_command_continues(run: Path, tmp_path: Path) -> None:
    folder, arguments = tmp_path / "interrupted", ("generate", *MADE, "--sessions", "1")
    code, errors = stopped_midway(folder, signal.SIGINT, *arguments)
    assert code == 130
    assert count(folder) == 1
    assert errors == f"Interrupted: 1 of 6 traces are in {folder}. The same command continues from here.\n"
    assert command(*arguments, "--out", str(folder), "--quiet").returncode == 0
    same_traces(recorded_traces(folder), recorded_traces(run))


def test_another_configuration_is_refused_with_the_difference(run: Path) -> None:
    changed = [*MADE[:-4], "--budget", "96", "--interval", "16"]
    done = command("generate", *changed, "--temperature", "1", "--out", str(run))
    assert done.returncode == 2
    assert "budget is 64 there and 96 here and temperature is 0.6 there and 1.0 here" in done.stderr
    assert "hint:" in done.stderr


def test_probing_exporting_and_importing(run: Path, tmp_path: Path) -> None:
    probed = command("probe", str(run), "--json")
    assert probed.returncode == 0, probed.stderr
    summary = json.loads(probed.stdout)
    assert (summary["probe_set"], summary["traces"], summary["new"], summary["failed"]) == ("default", 6, 6, 0)
    assert summary["probes"] == sum(len(one.probes) for one in recorded_traces(run, "default")) > 0
    out, again = tmp_path / "out.jsonl", tmp_path / "again"
    assert command("export", str(run), str(out)).stdout == f"6 traces of {run} are in {out}.\n"
    done = command("import", str(out), str(again))
    assert done.stdout.startswith(
        f"6 traces of 3 questions are in {again}, with {summary['probes']} probes, every 16 tokens"
    )
    assert recorded_traces(again, "default") == recorded_traces(run, "default")
    second = command("probe", str(run), "--interval", "32")
    assert f"6 of 6 traces are probed in the set 'every-32' of {run}" in second.stdout


def test_failures_are_shown_and_give_exit_code_1(tmp_path: Path) -> None:
    questions = tmp_path / "q.jsonl"
    rows: list[dict[str, Any]] = [
        {"id": "short", "text": "Find x, the greatest common divisor of 84 and 126.", "gold": "42"},
        {"id": "long", "text": "Find x. " * 2000, "gold": "1"},
    ]
    questions.write_text("".join(json.dumps(row) + "\n" for row in rows))
    arguments = (
        "generate",
        "--questions",
        str(questions),
        "--seeds",
        "1",
        "--budget",
        "32",
        "--out",
        str(tmp_path / "run"),
    )
    for _ in range(2):
        done = command(*arguments)
        assert done.returncode == 1
        assert "1 of 2 traces are in" in done.stdout
        assert "1 failed: the same command tries them again." in done.stdout
        assert "failed: long (seed 0): The prompt has" in done.stderr
    with Store.open(tmp_path / "run") as store:
        assert [failure.question_id for failure in store.failures()] == ["long"]
    assert json.loads(command(*arguments, "--json").stdout)["failures"][0]["question_id"] == "long"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("probe", "nowhere"), "There is no run in nowhere."),
        (("export", "nowhere", "out.jsonl"), "There is no run in nowhere."),
        (("import", "nothing.jsonl", "run"), "nothing.jsonl cannot be read"),
        (
            ("generate", "--questions", "arithmetic", "--limit", "1", "--seeds", "0", "--out", "r"),
            "With 0 seeds",
        ),
        (("generate", "--questions", "arithmetc", "--out", "r"), "arithmetc"),
        (("generate", "--questions", "q.jsonl", "--field", "gold", "--out", "r"), "'gold' does not name a field"),
        (("generate", "--questions", "arithmetic"), "--out"),
    ],
)
def test_wrong_arguments_give_one_sentence(arguments: tuple[str, ...], message: str) -> None:
    done = command(*arguments)
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_the_probes_that_rules_need_are_recorded(run: Path, tmp_path: Path) -> None:
    refused = command("probe", str(run), "--for", "deer", "--prefix", "So: {")
    assert (refused.returncode, "With --for, the rules determine the probes." in refused.stderr) == (2, True)
    unknown = command("probe", str(run), "--for", "dear")
    assert (unknown.returncode, "Did you mean 'deer'?" in unknown.stderr) == (2, True)
    for _ in range(2):  # the second call finds nothing to do
        done = command("probe", str(run), "--for", "deer,eat,puma-verify", "--json")
        assert done.returncode == 0, done.stderr
        summary = json.loads(done.stdout)
        assert (summary["traces"], summary["wanted"], len(summary["made_sets"])) == (6, 6, 4)
    assert summary["new"] == 0
    assert {"wait", "paragraph", "paragraph-entropy"} <= set(summary["made_sets"])
    assert all(probe.entropy is not None for one in recorded_traces(run, "paragraph-entropy") for probe in one.probes)


def test_a_run_with_budget_forcing(tmp_path: Path) -> None:
    folder = tmp_path / "forced"
    done = command("generate", *MADE, "--out", str(folder), "--rule", "budget-forcing", "--probe", "--logprobs", "--json")
    assert done.returncode == 0, done.stderr
    for one in recorded_traces(folder, "default"):
        assert (one.ended, one.thinking_tokens, len(one.tops), len(one.logprobs)) == ("budget", 64, 64, 64)
        assert {at for at, _ in one.forced} <= {probe.at for probe in one.probes}
    assert json.loads(done.stdout)["at_budget"] == 6
    again = command("generate", *MADE, "--out", str(folder))
    assert (again.returncode, "rule is 'budget-forcing' there and 'fixed-budget' here" in again.stderr) == (2, True)
