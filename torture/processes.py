"""cgr as child processes that can be killed at any moment: forked from this one, which has imported everything before."""

from __future__ import annotations

import importlib
import io
import os
import re
import resource
import shutil
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

from cgr.cli.main import BUG, MODULES, VERBS, run
from cgr.cli.main import main as cgr_main

MAX_SECONDS = 900.0  # far more than any command takes here, however busy the machine is
PRELOADED = ("numpy", "matplotlib.figure", "matplotlib.backends.backend_agg", "xllamacpp", "aiohttp", "rich.progress")


@dataclass(frozen=True, slots=True)
class Done:
    """How a command ended. A negative code is the number of the signal that ended it. `peak`: the most memory that it had,
    in bytes, what it shares with this process included."""

    arguments: tuple[str, ...]
    code: int
    out: str
    err: str
    peak: int = 0


class Child:
    """A command that runs in a process group of its own."""

    def __init__(self, arguments: Sequence[str], folder: Path, before: Callable[[], None] | None = None) -> None:
        self.arguments = tuple(arguments)
        self._streams = [folder / f".{name}-{time.monotonic_ns()}" for name in ("out", "err")]
        for one in (*self._streams, sys.stdout, sys.stderr):
            one.touch() if isinstance(one, Path) else one.flush()
        self.pid = os.fork()
        if self.pid == 0:
            _become(self.arguments, folder, self._streams, before)

    def kill(self) -> None:
        """SIGKILL to the process alone; what it started has to end by itself."""
        os.kill(self.pid, signal.SIGKILL)

    def running(self) -> bool:
        """Whether it has not ended yet; it stays to be waited for."""
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None

    def output(self) -> str:
        """What it has printed so far."""
        return self._streams[0].read_text(encoding="utf-8", errors="replace")

    def wait_address(self, until: float) -> str:
        """The address of a server, once it prints it; "" if it ended, or if that is too late."""
        while time.monotonic() < until and self.running():
            if found := re.search(r"at (http://\S+)/v1,", self.output()):
                return found[1]
            time.sleep(0.005)
        return ""

    def wait(self) -> Done:
        """Its end. A command that hangs is killed, and that is an error."""
        until = time.monotonic() + MAX_SECONDS
        while self.running():
            if time.monotonic() > until:
                os.killpg(self.pid, signal.SIGKILL)
                os.waitpid(self.pid, 0)
                raise AssertionError(f"cgr {' '.join(self.arguments)} hangs")
            time.sleep(0.005)
        _, status, used = os.wait4(self.pid, 0)
        out, err = (one.read_text(encoding="utf-8", errors="replace") for one in self._streams)
        for one in self._streams:
            one.unlink()
        return Done(self.arguments, os.waitstatus_to_exitcode(status), out, err, used.ru_maxrss << 10)

    def wait_for_group(self) -> None:
        """Until nothing that it started is left: a killed command must not leave processes behind."""
        until = time.monotonic() + 60
        while True:
            try:
                os.killpg(self.pid, 0)
            except ProcessLookupError:
                return
            assert time.monotonic() < until, f"cgr {' '.join(self.arguments)} was killed, but a process it started runs on"
            time.sleep(0.01)


def preload() -> None:
    """Import every command, so that the children need not. Nothing that starts a thread is done here."""
    for name in PRELOADED:
        importlib.import_module(name)
    for verb in VERBS:
        importlib.import_module(f"cgr.cli.{MODULES.get(verb, verb)}")


def cgr(*arguments: str, folder: Path, before: Callable[[], None] | None = None) -> Done:
    """Run a command in this folder to its end. `before` is called in the child, before the command."""
    return Child(arguments, folder, before).wait()


def called(*arguments: str) -> Done:
    """Run a command inside this process, which is much faster: for commands that end by themselves."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = run(arguments)
    return Done(tuple(arguments), code, out.getvalue(), err.getvalue())


def succeed(*arguments: str, folder: Path) -> Done:
    """The same; it is an error if the command fails."""
    done = cgr(*arguments, folder=folder)
    assert done.code == 0, (done.arguments, done.code, done.err[-2000:])
    return done


def refused(done: Done) -> bool:
    """True if the command refused in one sentence and a hint, False if it succeeded; anything else is an error."""
    if done.code == 0:
        assert "Traceback" not in done.err, done.err[-2000:]
        return False
    wrong = (done.arguments, done.code, done.err[-3000:])
    assert done.code in (1, 2), wrong
    assert "Traceback" not in done.err, wrong
    assert any(line.startswith(("error: ", "failed: ")) for line in done.err.splitlines()), wrong
    assert not any(ord(one) < 32 and one not in "\n\r\t" for one in done.out + done.err), wrong
    return True


def memory_of(pid: int | str) -> int:
    """Bytes of memory that a process has."""
    lines = (Path("/proc") / str(pid) / "status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) << 10


def copied(source: Path, target: Path) -> Path:
    """A copy of a folder."""
    return Path(shutil.copytree(source, target, dirs_exist_ok=True))


def limit_memory() -> None:
    """In a child: a command that asks for more than 6 GB of address space fails, and the machine survives."""
    resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))


def _become(
    arguments: Sequence[str], folder: Path, streams: Sequence[Path], before: Callable[[], None] | None
) -> None:  # pragma: no cover - in the child
    code = BUG
    try:
        os.setsid()
        os.chdir(folder)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for number, path in enumerate(streams, 1):
            os.dup2(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600), number)
        sys.stdout = os.fdopen(1, "w", encoding="utf-8")
        sys.stderr = os.fdopen(2, "w", encoding="utf-8")
        if before:
            before()
        cgr_main(arguments)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException as error:  # noqa: BLE001 - or the child would return into the caller of the parent
        sys.stderr.write(f"Traceback: {error!r}\n")
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
