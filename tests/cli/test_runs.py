"""`cgr runs`, `cgr open`, `--probes`, and what `cgr probe --for` says."""

from __future__ import annotations

import json
import os
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest

from cgr.cli.main import run
from cgr.errors import EngineError
from cgr.lab.compare import compare_run
from cgr.lab.exchange import export_run
from cgr.lab.store import GENERATE, Store
from cgr.lab.store.config import ProbeSet
from cgr.lab.store.listing import ListedRun, list_runs
from tests.lab.store.test_store import CONFIG, QUESTIONS, made, trace
from tests.support import CGR, environment

SMALL = ("--questions", "arithmetic", "--limit", "3", "--seeds", "2", "--budget", "64", "--quiet")


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("small") / "runs" / "one"
    assert run(["generate", *SMALL, "--probe", "--out", str(folder)]) == 0
    return folder


def listed(folder: Path, capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    capsys.readouterr()
    assert run(["runs", str(folder), "--json"]) == 0
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["runs"]
    return found


def test_a_run_is_listed(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (one,) = listed(small.parent, capsys)
    wanted = {"name": "one", "state": "complete", "questions": 3, "seeds": 2, "traces": 6, "failed": 0, "model": "embedded"}
    assert {key: one[key] for key in wanted} == wanted
    assert (one["probe_sets"], one["budget"], one["page"]) == ([["default", 6]], 64, False)
    assert one["size"] == (small / "run.sqlite").stat().st_size
    assert run(["runs", str(small.parent)]) == 0
    head, line = capsys.readouterr().out.splitlines()
    assert head.split() == [
        "Run",
        "Questions",
        "Seeds",
        "Traces",
        "Failed",
        "Model",
        "Probe",
        "sets",
        "State",
        "Size",
        "Changed",
    ]
    assert line.split()[:8] == ["one", "3", "2", "6", "0", "embedded", "default", "complete"]


def only(folder: Path) -> ListedRun:
    (one,) = list_runs(folder)
    return one


def test_the_state_of_a_run(tmp_path: Path) -> None:
    Store.create(tmp_path, CONFIG).close()
    assert only(tmp_path).state == "empty"
    with Store.open(tmp_path, write=True) as store:
        assert only(tmp_path).state == "running"
        store.add_questions(QUESTIONS)
        store.add_trace(trace())
    assert only(tmp_path).state == "incomplete"
    with Store.open(tmp_path, write=True) as store:
        store.add_failure((QUESTIONS[1].id, 0), GENERATE, EngineError("The engine failed."))
    assert (only(tmp_path).state, only(tmp_path).failed) == ("failures", 1)


def test_the_probes_of_a_listed_run(tmp_path: Path) -> None:
    with Store.create(tmp_path, CONFIG) as store:
        store.add_questions(QUESTIONS[:1])
        store.add_trace(trace())
    assert only(tmp_path).state == "not probed"
    with Store.open(tmp_path, write=True) as store:
        store.add_probe_set(ProbeSet("interval", 4))
    assert (only(tmp_path).state, only(tmp_path).probe_sets) == ("partly probed", (("default", 0),))


def test_a_file_that_is_no_run_is_listed_with_the_reason(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made(tmp_path / "a" / "b" / "good", trace())
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "run.sqlite").write_text("not a database, but long enough to be read as one by SQLite" * 9)
    found = {one["name"]: one for one in listed(tmp_path, capsys)}
    assert set(found) == {"a/b/good", "bad"}
    assert (found["bad"]["state"], "is not a run" in found["bad"]["problem"]) == ("unreadable", True)
    assert run(["runs", str(tmp_path)]) == 0
    assert "bad: " in capsys.readouterr().out


def test_no_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["runs", str(tmp_path)]) == 0
    assert "There are no runs in" in capsys.readouterr().out
    assert run(["runs", str(tmp_path / "nowhere")]) == 2
    assert "There is no folder" in capsys.readouterr().err


def test_the_page_is_made_and_opened(small: Path, tmp_path: Path) -> None:
    """A browser of our own, as BROWSER names one, writes down what it was asked to open."""
    browser, opened = tmp_path / "browser", tmp_path / "opened"
    browser.write_text(f'#!/bin/sh\nprintf %s "$1" > {opened}\n')
    browser.chmod(browser.stat().st_mode | stat.S_IXUSR)
    page = small / "report" / "index.html"
    assert not page.exists()
    for _ in range(2):  # made, then found
        done = subprocess.run(
            [CGR, "open", str(small)],
            capture_output=True,
            text=True,
            check=False,
            env=environment({"BROWSER": f"{browser} %s"}),
        )
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout == f"{page.resolve().as_uri()}\n" == f"{opened.read_text()}\n"
        opened.unlink()


def test_only_the_link(small: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BROWSER", "/no/such/browser %s")
    assert run(["open", str(small), "--print"]) == 0
    told = capsys.readouterr()
    assert (told.out, told.err) == (f"{(small / 'report' / 'index.html').resolve().as_uri()}\n", "")
    os.utime(small / "run.sqlite", (4e9, 4e9))
    assert run(["open", str(small / "run.sqlite"), "--print"]) == 0
    assert "has changed since the page was made" in capsys.readouterr().err


def test_the_page_of_a_file(small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    export_run(small, tmp_path / "traces.jsonl")
    assert run(["open", str(tmp_path / "traces.jsonl"), "--print"]) == 0
    assert capsys.readouterr().out.strip() == (tmp_path / "traces-report" / "index.html").resolve().as_uri()
    assert run(["open", str(tmp_path / "nothing"), "--print"]) == 2


@pytest.mark.parametrize(
    "arguments",
    [
        ("report", "{run}", "{option}", "default", "--out", "{new}"),
        ("export", "{run}", "{new}", "{option}=default"),
        ("fit", "{run}", "--rule", "cgr", "--out", "{new}.json", "{option}", "default"),
        ("probe", "{run}", "--interval", "48", "{option}", "default"),
    ],
)
def test_the_name_of_a_probe_set(
    arguments: tuple[str, ...], small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """--probes, and its former names with a note."""
    former = "--probe-set" if arguments[0] == "fit" else "--set"
    for option, note in (("--probes", ""), (former, f"note:  {former} for a probe set is now called --probes.\n")):
        filled = [one.format(run=small, new=tmp_path / option.strip("-"), option=option) for one in arguments]
        assert run(filled) == 0, capsys.readouterr().err
        assert capsys.readouterr().err == note


@pytest.mark.parametrize(
    ("rules", "note"),
    [
        ("deepconf", "reads no probes, but the log-probabilities of the thinking, which this run lacks"),
        ("fixed-budget", "there is nothing to record for it"),
        ("cgr-forced", "it forces the thinking to continue"),
    ],
)
def test_rules_for_which_nothing_can_be_probed(
    rules: str, note: str, small: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["probe", str(small), "--for", rules]) == 0
    told = capsys.readouterr()
    assert note in told.err
    assert told.out == f"No probes were made in {small}.\n"
    assert run(["probe", str(small), "--for", rules, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["new"] == 0


def test_a_rule_beside_one_that_reads_no_probes(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["probe", str(small), "--for", "no-thinking,deepconf", "--json"]) == 0
    told = capsys.readouterr()
    assert "'deepconf' reads no probes" in told.err
    assert json.loads(told.out)["made_sets"] == ["start"]


def test_what_is_advised_about_a_file(small: Path, tmp_path: Path) -> None:
    """The file is imported into a folder that is soon removed: that folder is not named."""
    path = tmp_path / "traces.jsonl"
    export_run(small, path)
    hints = {one.rule: one.hint for one in compare_run(path, ["cgr", "deer"]).missing}
    assert hints == {"deer": f"Record them: cgr import {path} runs/traces, then cgr probe runs/traces --for deer"}
    hints = {one.rule: one.hint for one in compare_run(small, ["cgr", "deer"]).missing}
    assert hints == {"deer": f"Record them: cgr probe {small} --for deer"}
