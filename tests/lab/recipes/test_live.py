"""Results while traces are made: a table on a terminal, lines elsewhere, nothing if quiet; and the time left."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

from cgr.engines.llama.engine import LlamaEngine
from cgr.lab.questions import load_questions
from cgr.lab.recipes import live
from cgr.lab.recipes.live import LiveResults
from cgr.lab.record import jobs
from cgr.lab.record.generate import Plan, agenerate
from cgr.lab.record.jobs import Progress
from cgr.lab.report import write_report
from cgr.lab.report.tables import headline_lines, headlines
from cgr.lab.store import Store
from cgr.settings import Settings
from tests.lab.runs import trace

THRESHOLDS, PENALTIES = (0.5, 0.9), (0.0, 1.0)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything is shown after every trace."""
    for name in ("REFRESH_SECONDS", "LINE_SECONDS", "MAX_LINE_SECONDS"):
        monkeypatch.setattr(live, name, 0.0)
    monkeypatch.setattr(live, "COMPUTING_SHARE", math.inf)


async def made(folder: Path, engine: LlamaEngine, seeds: int = 2, *, terminal: bool = False, quiet: bool = False) -> str:
    """What was shown while a small run was made, or continued."""
    plan = Plan(load_questions("arithmetic", limit=3), seeds, Settings(budget=96, interval=16), probe=True)
    console = Console(file=io.StringIO(), force_terminal=terminal, width=120)
    progress = LiveResults(THRESHOLDS, PENALTIES, console=console, quiet=quiet)
    await agenerate(folder, plan, engine, progress=progress)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def final_table(folder: Path) -> list[str]:
    (report,) = write_report([folder], thresholds=THRESHOLDS, penalties=PENALTIES).reports
    return headline_lines(headlines(report))


async def test_lines_without_a_terminal(engine: LlamaEngine, tmp_path: Path) -> None:
    lines = (await made(tmp_path / "run", engine)).splitlines()
    assert [line.split(" traces")[0] for line in lines] == [f"{number} of 6" for number in range(1, 7)]
    assert ["left" in line for line in lines] == [False, False, True, True, True, True]  # three questions
    baseline, *_, rule = (row.split() for row in final_table(tmp_path / "run")[1:])
    assert f"baseline {baseline[1]}; CGR 0.9 {rule[2]} with " in lines[-1]
    assert f"a fixed budget of that cost {rule[3]}." in lines[-1]


async def test_a_table_on_a_terminal(engine: LlamaEngine, tmp_path: Path) -> None:
    shown = await made(tmp_path / "run", engine, terminal=True)
    for line in final_table(tmp_path / "run"):
        assert line in shown
    assert "Fixed budget" in shown
    assert "6/6" in shown
    assert " of 6 traces" not in shown


async def test_traces_from_before_are_included(engine: LlamaEngine, tmp_path: Path) -> None:
    await made(tmp_path / "run", engine, seeds=1)
    (first, *_) = (await made(tmp_path / "run", engine)).splitlines()
    assert first.startswith("4 of 6 traces")


@pytest.mark.parametrize("terminal", [False, True])
async def test_nothing_if_quiet(engine: LlamaEngine, tmp_path: Path, terminal: bool) -> None:
    assert await made(tmp_path / "run", engine, seeds=1, terminal=terminal, quiet=True) == ""


def progress_at(
    monkeypatch: pytest.MonkeyPatch, store: Store, missing: Sequence[tuple[str, int]], seconds: float
) -> Progress:
    """A progress that began this many seconds ago."""
    now = [0.0]
    monkeypatch.setattr(jobs, "time", SimpleNamespace(monotonic=lambda: now[0]))
    progress = Progress(quiet=True)
    progress.begin(store, missing)
    with progress.showing("Thinking", len(missing), 0):
        now[0] = seconds
    return progress


async def test_the_time_left_follows_from_what_each_question_took(
    monkeypatch: pytest.MonkeyPatch, engine: LlamaEngine, tmp_path: Path
) -> None:
    await made(tmp_path / "run", engine, seeds=1)
    missing = [(question, seed) for seed in range(3) for question in ("easy", "hard")]
    with Store.open(tmp_path / "run") as store:
        progress = progress_at(monkeypatch, store, missing, 10.0)
    assert progress.seconds_left is None
    progress.add_tokens(100)
    progress.add_trace(trace("easy", 0, "1", 100, "end_of_thinking", ("1", 0.9)))
    assert progress.seconds_left is None  # the hard one is not known yet
    progress.add_tokens(900)
    progress.add_trace(trace("hard", 0, "1", 900, "end_of_thinking", ("1", 0.9)))
    assert progress.seconds_left == pytest.approx(20.0)  # 1,000 tokens in 10 seconds; 2 x 100 and 2 x 900 are left
    progress.add_tokens(1000)  # of traces that are not finished
    assert progress.seconds_left == pytest.approx(5.0)  # 1,000 of the 2,000 tokens are left, at 200 a second


async def test_many_traces_are_enough_for_an_estimate(
    monkeypatch: pytest.MonkeyPatch, engine: LlamaEngine, tmp_path: Path
) -> None:
    monkeypatch.setattr(jobs, "ENOUGH_TRACES", 2)
    await made(tmp_path / "run", engine, seeds=1)
    with Store.open(tmp_path / "run") as store:
        progress = progress_at(monkeypatch, store, [(name, 0) for name in "abcd"], 10.0)
    for name, tokens in (("a", 100), ("b", 300)):
        assert progress.seconds_left is None
        progress.add_tokens(tokens)
        progress.add_trace(trace(name, 0, "1", tokens, "end_of_thinking", ("1", 0.9)))
    assert progress.seconds_left == pytest.approx(10.0)
