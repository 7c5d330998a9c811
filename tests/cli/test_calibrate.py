"""`cgr calibrate` as a user runs it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from cgr.calibration import read
from tests.lab.calibrate.promised import imported, stored, traces
from tests.support import command


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return stored(tmp_path_factory.mktemp("runs") / "run", traces(400, wrong=[(1, 0.93)], sure=0.985))


def test_a_promise_is_printed_and_written(run: Path) -> None:
    done = command("calibrate", str(run), "--lose-at-most", ".02")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("Head room:")
    assert (
        "With 95% confidence at most 2% of answers change; 74.5% of the thinking tokens are saved, net of probes." in lines
    )
    assert any(line.split()[:2] == ["0.97", "0.00%"] for line in lines)
    found = read(run / "calibration.json")
    assert found.parameter == 0.5
    assert (run / "calibration.png").stat().st_size > 1000
    as_json = command("calibrate", str(run), "--lose-at-most", ".02", "--json", "--out", str(run / "other.json"))
    data = json.loads(as_json.stdout)
    assert data["parameter"] == 0.5
    assert json.loads((run / "other.json").read_text()) == data


def test_nothing_can_be_promised(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "none.json"
    done = command("calibrate", str(run), "--lose-at-most", ".001", "--out", str(out))
    assert done.returncode == 1
    assert "Nothing can be promised: 400 questions do not show, with 95% confidence, a loss of at most 0.1%." in done.stdout
    assert "About 2,995 questions are needed at the rate seen." in done.stdout
    assert "These questions can promise 0.746%, and no better." in done.stdout
    assert list(tmp_path.iterdir()) == []
    data = json.loads(command("calibrate", str(run), "--lose-at-most", ".001", "--out", str(out), "--json").stdout)
    assert (data["parameter"], data["needed_questions"]) == (None, 2995)


def test_a_promise_is_checked_on_new_data(run: Path, tmp_path: Path) -> None:
    assert command("calibrate", str(run), "--lose-at-most", ".02").returncode == 0
    bad = stored(tmp_path / "bad", traces(200, wrong=[(n, 0.9) for n in range(30)], sure=0.985))
    done = command("calibrate", str(run), "--check", str(bad))
    assert done.returncode == 1
    assert "The promise is broken here: the loss is above 2%." in done.stdout
    good = stored(tmp_path / "good", traces(200, sure=0.98))
    checked = command("calibrate", str(run / "calibration.json"), "--check", str(good), "--json")
    assert (checked.returncode, json.loads(checked.stdout)["verdict"]) == (0, "holds")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--lose-at-most", "0"), "A loss of at most 0 cannot be promised."),
        (("--lose-at-most", "1"), "A loss of at most 1 cannot be promised."),
        (("--confidence", "1"), "A confidence of 1 is not possible."),
        (("--confidence", "0"), "A confidence of 0 is not possible."),
        (("--rule", "fixed-budget"), "has no parameter to calibrate"),
        (("--rule", "cgrr"), "There is no rule called 'cgrr'."),
        (("--out", "file.txt"), "does not end in .json"),
        (("--method", "crc", "--risk", "wrong"), "Conformal risk control cannot bound the risk 'wrong'."),
        (("--check", "nowhere"), "There is no run in"),
        (("--rule", "calibrated", "--learn-on", "0"), "Weights cannot be learned from a share of 0 of the questions"),
        (("--rule", "calibrated", "--learn-on", "1"), "Weights cannot be learned from a share of 1 of the questions"),
    ],
)
def test_bad_input_is_one_sentence_and_a_hint(run: Path, arguments: tuple[str, ...], words: str) -> None:
    if arguments[0] == "--check":
        command("calibrate", str(run), "--lose-at-most", ".02")
    done = command("calibrate", str(run), *arguments)
    assert done.returncode == 2
    assert words in done.stderr
    assert [line.split()[0] for line in done.stderr.splitlines()] == ["error:", "hint:"]


def test_without_probes_the_exit_code_is_not_that_of_a_broken_promise(run: Path, tmp_path: Path) -> None:
    assert command("calibrate", str(run), "--lose-at-most", ".02").returncode == 0
    bare = stored(tmp_path / "bare", [replace(one, probes=()) for one in traces(20)])
    for done in (command("calibrate", str(bare)), command("calibrate", str(run), "--check", str(bare))):
        assert done.returncode == 2
        assert "has no probes yet." in done.stderr
        assert [line.split()[0] for line in done.stderr.splitlines()] == ["error:", "hint:"]


def test_an_imported_run_without_golds(tmp_path: Path) -> None:
    folder = imported(tmp_path / "run", [replace(one, gold=None) for one in traces(310)])
    assert command("calibrate", str(folder)).returncode == 0
    done = command("calibrate", str(folder), "--risk", "lost")
    assert done.returncode == 2
    assert "No question has a known answer, which the risk 'lost' needs." in done.stderr


def test_solve_takes_the_file_and_refuses_what_is_outside(tmp_path: Path) -> None:
    """On the embedded model: record, calibrate with a generous loss, solve."""
    folder = tmp_path / "run"
    made = ("--questions", "arithmetic", "--limit", "24", "--seeds", "1", "--budget", "512", "--probe", "--quiet")
    assert command("generate", *made, "--out", str(folder)).returncode == 0
    done = command("calibrate", str(folder), "--lose-at-most", "0.3")
    assert done.returncode == 0, done.stdout + done.stderr
    file = str(folder / "calibration.json")
    threshold = json.loads((folder / "calibration.json").read_text())["parameter"]
    solved = command("solve", "--calibration", file, "--json")
    assert solved.returncode == 0, solved.stderr
    assert json.loads(solved.stdout)["threshold"] == threshold
    shown = command("solve", "--calibration", file)
    assert "With 95% confidence at most 30% of answers change" in shown.stdout
    for option, value in (("--interval", "7"), ("--threshold", "0.123"), ("--prefix", "So: \\boxed{")):
        refused = command("solve", "--calibration", file, option, value)
        assert (refused.returncode, refused.stdout) == (2, "")
        assert refused.stderr.startswith("error: The calibration")
