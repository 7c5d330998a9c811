"""`cgr demo`: interrupted, continued, repeated without work; and its output."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from tests.cli.test_lab import count, stopped_midway
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
    *progress, last = done.stderr.splitlines()  # a slow machine has time for lines about its progress
    assert last == "Writing the report: tables, figures and a page."
    assert all(" of 14 traces" in line for line in progress)
    return folder, done.stdout


def times(folder: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


def test_the_demo_shows_a_table_a_picture_and_a_page(demo: tuple[Path, str]) -> None:
    folder, out = demo
    assert "arithmetic problems, once each" in out
    assert "The time left is shown once each problem was thought about once" in " ".join(out.split())
    assert f"14 of 14 traces are in {folder}" in out
    for name in ("baseline", "CGR 0.96", "CGR 0.97", "CGR 0.98", "CGR 0.99"):
        assert f"\n{name} " in out
    assert "the model also wrote" not in out
    assert f"cgr report {folder}" not in out  # it is written already
    shown, page = out.split("\n\n")[-2].splitlines()
    assert page == f"page:      file://{folder}/report/index.html"
    assert shown.startswith(f"picture:   file://{folder}/report/figures/")
    assert Path(shown.split("file://")[1]).read_bytes().startswith(b"\x89PNG")
    assert (folder / "report" / "index.html").is_file()


def test_the_demo_shows_what_a_fixed_budget_of_the_same_cost_gets(demo: tuple[Path, str]) -> None:
    folder, out = demo
    heads, *rows = next(part for part in out.split("\n\n") if "baseline " in part).splitlines()
    assert "Fixed budget" in heads
    assert "Fixed budget: the accuracy of one budget for all traces that costs as many tokens as CGR" in out
    adaptive = json.loads((folder / "report" / "report.json").read_text())["adaptive"]
    for row, numbers in zip(rows[1:], adaptive, strict=True):
        fixed = numbers["fixed_accuracy"]
        assert row.split()[3] == ("–" if fixed is None else f"{100 * fixed:.1f}%")


def test_the_demo_says_what_to_type_next(demo: tuple[Path, str]) -> None:
    folder, out = demo
    head, *commands = out.split("\n\n")[-1].splitlines()
    assert head == "Next:"
    assert [line.split("  ")[1].split(" ", 1)[1].strip() for line in commands] == [
        f"open {folder}",
        "solve",
        f"probe {folder} --for all",
        f"compare {folder}",
    ]


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
