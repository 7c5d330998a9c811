"""The whole way from traffic to an alarm, with a few questions."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.end_to_end import Point, Watched, draw, questions, told
from cgr.calibration import read

ROOT = Path(__file__).parents[2]


def run(out: Path, *options: str) -> subprocess.CompletedProcess[str]:
    call = [sys.executable, "-m", "benchmarks.end_to_end", "--out", str(out), *options]
    return subprocess.run(call, capture_output=True, text=True, check=False, cwd=ROOT)


def test_a_few_questions_from_the_shadow_to_the_audits(tmp_path: Path) -> None:
    few = (
        "--questions",
        "16",
        "--usual",
        "4",
        "--harder",
        "4",
        "--lose-at-most",
        ".5",
        "--usual-kinds",
        "product:1",
        "--harder-kinds",
        "gcd:1",
        "--figure",
        str(tmp_path / "f.png"),
    )
    done = run(tmp_path / "out", *few)
    assert done.returncode == 0, done.stderr
    assert "Recorded 16 questions" in done.stdout
    found = json.loads((tmp_path / "out" / "end-to-end.json").read_text())
    assert read(tmp_path / "out" / "shadow" / "calibration.json").questions == 16
    assert [point["requests"] for point in found["points"]] == [4, 8]
    assert [point["audits"] for point in found["points"]] == [4, 8]
    assert (tmp_path / "f.png").stat().st_size > 10_000
    again = run(tmp_path / "out", *few)
    assert (again.returncode, "already something" in again.stderr) == (1, True)


def test_the_usual_and_the_harder_traffic_share_no_question() -> None:
    usual, harder = questions("product,gcd:2,3", 40), questions("map:4", 40)
    assert len({*usual, *harder}) == 80
    with pytest.raises(SystemExit, match="only"):
        questions("gcd:1", 100_000)


def watched(*, broken: bool) -> Watched:
    points = [Point(4, 4, 0, 0.0, 0.5, False), Point(8, 8, 3, 0.1, 0.7, broken)]
    return Watched(4, points, [100] * 8, [True] * 8)


@pytest.mark.parametrize("broken", [True, False])
def test_the_result_in_words_and_as_a_figure(broken: bool) -> None:
    found = watched(broken=broken)
    assert (found.alarm is not None) is broken
    assert draw(found, 0.02).axes[0].get_xlabel() == "requests"
    numbers = {
        "epsilon": 0.02, "questions": 600, "mean_thinking_tokens": 100.0, "promise": "A promise.", "threshold": 0.97,
        "usual": {"audits": 4, "losses": 0, "lower": 0.0, "upper": 0.5, "mean_thinking_tokens": 60.0},
        "alarm": {} if broken else None, "losses_to_alarm": 3, "requests_to_alarm": 4, "stopped_after_alarm": 0,
        "seconds": 60.0,
    }  # fmt: skip
    words = "3 losses in 4 requests, then the alarm" if broken else "no alarm"
    assert words in told(numbers)
