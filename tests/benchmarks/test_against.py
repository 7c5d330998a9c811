"""The comparison with another checkout, which is this one here."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_a_checkout_beside_itself() -> None:
    call = [sys.executable, "-m", "benchmarks.against", str(ROOT), "--turns", "1", "--tokens", "32"]
    done = subprocess.run(call, capture_output=True, text=True, check=True, cwd=ROOT)
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["1", "8", "32"]
    assert all(float(line.rsplit(" ", 1)[1]) > 0 for line in lines)


def test_a_folder_that_is_no_checkout(tmp_path: Path) -> None:
    call = [sys.executable, "-m", "benchmarks.against", str(tmp_path)]
    done = subprocess.run(call, capture_output=True, text=True, check=False, cwd=ROOT)
    assert (done.returncode, done.stderr) == (1, "Give the folder of another checkout of cgr.\n")
