"""`cgr demo`: interrupted, continued, repeated without work; and its output."""

from __future__ import annotations

import json
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from cgr.lab.decide.columns import Columns
from cgr.lab.report import numbers
from cgr.lab.report.result import Report
from cgr.lab.report.terminal import Headline, headline_lines, headlines, main_figure
from tests.cli.test_lab import count, stopped_midway
from tests.lab.runs import plausible
from tests.support import command

SMALL = ("--questions", "14", "--seeds", "1", "--budget", "96")  # more than think at once: Ctrl-C comes midway


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A demo that was interrupted and then finished, and its last output."""
    folder = tmp_path_factory.mktemp("runs") / "demo"
    code, said = stopped_midway(folder, signal.SIGINT, "demo", *SMALL)
    assert code == 130
    assert said == f"Interrupted: {count(folder)} of 14 traces are in {folder}. The same command continues from here.\n"
    assert not (folder / "report" / "made.json").exists()
    done = command("demo", *SMALL, "--out", str(folder))
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return folder, done.stdout


def times(folder: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


def test_the_demo_shows_a_table_a_picture_and_a_page(demo: tuple[Path, str]) -> None:
    folder, out = demo
    assert "arithmetic problems, 1 times each" in out
    assert f"14 of 14 traces are in {folder}" in out
    for name in ("baseline", "CGR 0.96", "CGR 0.97", "CGR 0.98", "CGR 0.99"):
        assert f"\n{name} " in out
    shown, page = out.splitlines()[-2:]
    assert page == f"page:    {folder}/report/index.html"
    assert shown.startswith(f"picture: {folder}/report/figures/")
    assert Path(shown.split()[1]).read_bytes().startswith(b"\x89PNG")
    assert (folder / "report" / "index.html").is_file()


def test_a_second_call_makes_nothing_and_loads_no_model(demo: tuple[Path, str]) -> None:
    folder, first = demo
    before = times(folder)
    done = command("demo", *SMALL, "--out", str(folder), env={"PYTHONPROFILEIMPORTTIME": "1"})
    assert done.returncode == 0
    assert times(folder) == before
    modules = {line.rsplit("|", 1)[1].strip().split(".")[0] for line in done.stderr.splitlines() if "|" in line}
    assert "cgr" in modules
    assert not modules & {"xllamacpp", "datasets"}
    assert f"14 of 14 traces are in {folder}, 0 of them new." in done.stdout
    assert done.stdout.split("\n\n")[2:] == first.split("\n\n")[2:]


def test_json_is_one_object_and_nothing_else(demo: tuple[Path, str]) -> None:
    folder, _ = demo
    done = command("demo", *SMALL, "--out", str(folder), "--json")
    outcome = json.loads(done.stdout)
    assert done.stderr == ""
    assert (outcome["run"], outcome["thinking"]["new"], outcome["probing"]) == (str(folder), 0, None)
    assert [row["threshold"] for row in outcome["results"]] == [None, 0.96, 0.97, 0.98, 0.99]
    assert outcome["page"] == f"{folder}/report/index.html"


def test_another_budget_into_the_same_folder_is_refused(demo: tuple[Path, str]) -> None:
    folder, _ = demo
    done = command("demo", *SMALL[:-1], "64", "--out", str(folder))
    assert done.returncode == 2
    assert "budget is 96 there and 64 here" in done.stderr
    assert f"remove {folder}" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(("--questions", "0"), "limit cannot be 0."), (("--seeds", "0"), "seeds cannot be 0."), (("--seeds", "x"), "'x'")],
)
def test_invalid_demo_options_are_refused(arguments: tuple[str, ...], said: str, tmp_path: Path) -> None:
    done = command("demo", *arguments, "--out", str(tmp_path / "run"))
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert said in done.stderr
    assert "hint:" in done.stderr
    assert not (tmp_path / "run").exists()


# The lines


@pytest.fixture(scope="module")
def report() -> Report:
    return numbers.report(Columns.of(*plausible()))


def test_a_headline_says_what_the_report_says(report: Report) -> None:
    base, *rest = headlines(report)
    assert (base.threshold, base.accuracy, base.saved_tokens) == (None, report.baseline.accuracy, None)
    for row, said in zip(report.thresholds, rest, strict=True):
        saved = report.saved(row.threshold)
        grade = next(one for one in report.grade if (one.threshold, one.penalty) == (row.threshold, 1))
        assert (said.threshold, said.accuracy, said.diff_points) == (row.threshold, row.accuracy, row.diff_points)
        assert (said.saved_tokens, said.saved_share) == (saved.total, saved.share)
        assert (said.net_tokens, said.net_share) == (saved.net_total, saved.net_share)
        assert (said.grade, base.grade, said.penalty) == (grade.final, grade.baseline, 1)
        assert row.ci95 is not None
        assert said.ci95_points == pytest.approx([100 * end / report.questions for end in row.ci95])


def test_the_largest_penalty_is_shown_without_a_penalty_of_one(report: Report) -> None:
    less = replace(report, grade=tuple(row for row in report.grade if row.penalty < 1))
    assert {row.penalty for row in headlines(less)} == {0.5}
    assert "Grade p=0.5" in headline_lines(headlines(less))[0]
    assert {row.grade for row in headlines(replace(report, grade=()))} == {None}


def test_the_table_fits_a_terminal_and_is_aligned(report: Report) -> None:
    head, *rows = lines = headline_lines(headlines(report))
    assert max(map(len, lines)) <= 80
    assert len({len(line) for line in (head, *rows)}) == 1
    assert head.split() == ["Accuracy", "Diff.", "95%", "interval", "Saved", "Net", "Grade", "p=1"]


def test_unknown_numbers_are_shown_as_dashes() -> None:
    rows = (Headline(None, None), Headline(0.99, None, None, None, 10, 0.1, 5, 0.05))
    assert headline_lines(rows)[2].split() == ["CGR", "0.99", "–", "–", "–", "10.0%", "5.0%", "–"]


def test_the_best_available_picture_is_shown(tmp_path: Path) -> None:
    (tmp_path / "figures").mkdir()
    assert main_figure(tmp_path) is None
    for name in ("tokens_used", "accuracy_against_tokens"):
        (tmp_path / "figures" / f"{name}.png").touch()
        assert main_figure(tmp_path) == tmp_path / "figures" / f"{name}.png"
