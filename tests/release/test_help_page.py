from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from release import help_page

ROOT = Path(__file__).parents[2]


def test_the_help_texts_in_the_docs_are_current() -> None:
    """In a process of its own: the help names the known rules, and other tests add some."""
    call = [sys.executable, "-m", "release", "--only", "help"]
    done = subprocess.run(call, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_command_is_on_the_page() -> None:
    names = [name for name, _ in help_page.help_texts()]
    assert {"", "solve", "serve", "calibrate"} <= set(names)
