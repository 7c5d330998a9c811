"""Ctrl-C at early moments of a real process: exit code 130, no traceback, nothing lost."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from cgr.lab.store import NotARun, Store
from tests.support import CGR, command, environment

# The signal is sent when this module has been imported: Python says so on standard error with PYTHONPROFILEIMPORTTIME.
EARLY = (
    "cgr.interrupt", "asyncio.events", "asyncio", "cgr.records", "cgr.rules.base", "cgr.rules", "cgr.settings", "cgr.solve",
    "cgr", "click.core", "click", "cgr.cli.main", "rich.console", "cgr.cli.shared.options", "aiohttp", "xllamacpp",
)  # fmt: skip
MADE = (
    "--questions",
    "arithmetic",
    "--limit",
    "2",
    "--seeds",
    "2",
    "--budget",
    "48",
    "--interval",
    "16",
    "--sessions",
    "1",
)


def interrupted(arguments: Sequence[str], module: str, seconds: float = 0.0) -> tuple[int, str]:
    """The exit code and the errors of `cgr` after Ctrl-C, some time after it has imported this module."""
    env = environment({"PYTHONPROFILEIMPORTTIME": "1"})
    with subprocess.Popen(
        [CGR, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=env
    ) as starting:
        assert starting.stderr is not None
        for line in starting.stderr:
            if line.rsplit("|", 1)[-1].strip() == module:
                break
        else:
            pytest.fail(f"{module} was never imported")
        time.sleep(seconds)
        starting.send_signal(signal.SIGINT)
        errors = starting.stderr.read()
    return starting.returncode, "".join(
        line for line in errors.splitlines(keepends=True) if not line.startswith("import time:")
    )


@pytest.mark.parametrize("module", EARLY)
def test_while_the_command_is_imported(module: str) -> None:
    code, errors = interrupted(["solve", "--rule", "budget-forcing"], module)
    assert code in (130, -signal.SIGINT)  # ended by itself or by the signal: a shell shows 130 for both
    assert "Traceback" not in errors
    assert "KeyboardInterrupt" not in errors


def test_a_program_that_imports_the_package_keeps_its_handler() -> None:
    handler = "signal.getsignal(signal.SIGINT)"
    code = f"import signal; before = {handler}; import cgr, cgr.cli.main; print({handler} is before)"
    done = subprocess.run(
        [CGR.parent / "python", "-c", code], capture_output=True, text=True, check=True, env=environment({})
    )
    assert done.stdout == "True\n"


@pytest.mark.parametrize("milliseconds", [0, 50, 100, 200, 300, 500, 800])
def test_a_run_that_is_interrupted_early_can_be_continued(tmp_path: Path, milliseconds: int) -> None:
    """Whenever it happens: every trace that was stored stays, and the same command makes the rest."""
    arguments = ("generate", *MADE, "--out", str(tmp_path / "run"))
    code, errors = interrupted(arguments, "cgr.interrupt", milliseconds / 1000)
    assert "Traceback" not in errors
    assert code in (0, 130, -signal.SIGINT)  # by the signal itself, if everything was done and the interpreter was ending
    before = made(tmp_path / "run")
    assert command(*arguments).returncode == 0
    assert set(before) <= set(made(tmp_path / "run"))
    assert len(made(tmp_path / "run")) == 4


def made(folder: Path) -> tuple[tuple[str, int], ...]:
    try:
        with Store.open(folder) as store:
            return store.made()
    except NotARun:
        return ()
