"""Places where a command cannot write, or where another one writes too; and clocks that jump."""

from __future__ import annotations

import ctypes
import datetime as datetime_module
import os
import random
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from torture.kills import PROBE, QUESTIONS, REPORT, Pipeline, Prepared, prepare
from torture.knocks import Skipped, Trial, Try, knock_of
from torture.processes import Child, Done, cgr, copied, preload, refused
from torture.runs import compare_files, compare_rows, rows
from torture.upstream import upstream_process

NOBODY = 65534
COMMANDS = ("generate", "probe", "export", "import", "merge", "fit", "report")


@dataclass(frozen=True, slots=True)
class Place:
    """All commands on one run, the folders in which each can start, and the folder after all of them."""

    commands: dict[str, tuple[str, ...]]
    prepared: Prepared

    def run(self, name: str, folder: Path, before: Callable[[], None] | None = None) -> Done:
        """Run a command in this folder."""
        return cgr(*self.commands[name], folder=folder, before=before)


@contextmanager
def _place(folder: Path) -> Iterator[Place]:
    preload()
    with upstream_process() as address:
        server = ("--base-url", address)
        generate = ("generate", *QUESTIONS, "--seeds", "2", "--out", "run", "--quiet", *server)
        commands = {
            "generate": generate,
            "probe": (*PROBE, *server),
            "export": ("export", "run", "run.jsonl"),
            "import": ("import", "run.jsonl", "in"),
            "merge": ("merge", "run", "--out", "both"),
            "fit": ("fit", "run", "--rule", "cgr", "--out", "rule.json"),
            "report": REPORT,
        }
        pipeline = Pipeline(tuple(commands[name] for name in COMMANDS), 0)
        yield Place(commands, prepare(pipeline, folder / "place"))


def _finish(place: Place, folder: Path) -> None:
    """Repeat every command, and compare the end with that of undisturbed commands."""
    for name in COMMANDS:
        done = place.run(name, folder)
        if refused(done):
            assert "already" in done.err, (done.arguments, done.err)
    end = place.prepared.end
    for run in ("run", "in", "both"):
        compare_rows(rows(folder / run), rows(end / run), exact=True)
    compare_files(folder, end)


@knock_of(
    "disk-full",
    "a disk of a few hundred kilobytes is full at some moment of generate, probe, export, import, merge, fit or report",
    "one sentence; with a larger disk the same commands continue, and the end is the same",
    times=8,
    long=60,
    mended=(
        "`cgr generate` did not continue a run whose file was created on a full disk, or by a command killed at once.",
    ),
)
@contextmanager
def disk_full(folder: Path) -> Iterator[Try]:
    """A tmpfs of random size; afterwards everything is copied to a disk with room."""
    libc = ctypes.CDLL(None, use_errno=True)
    small = folder / "small"
    small.mkdir()

    def mount(size: int) -> None:
        if libc.mount(b"tmpfs", bytes(small), b"tmpfs", 0, f"size={size}k".encode()):
            raise Skipped(f"a small tmpfs cannot be mounted here: {os.strerror(ctypes.get_errno())}")

    mount(100)
    libc.umount(bytes(small))
    with _place(folder) as place:

        def one(trial: Trial) -> str:
            mount(trial.chance.choice((0, 12, 40, 80, 120, 200, 300, 500, 800)) or 4)
            stopped = "nothing"
            try:
                for name in COMMANDS:
                    done = place.run(name, small, _quiet_streams(trial.folder))
                    if done.code:
                        _refused_elsewhere(trial.folder)
                        stopped = name
                        break
                copied(small, trial.folder / "larger")
            finally:
                libc.umount(bytes(small))
            _finish(place, trial.folder / "larger")
            return f"stopped {stopped}"

        yield one


def _quiet_streams(folder: Path) -> Callable[[], None]:
    """In the child: write messages to a disk that has room, as a terminal has."""

    def before() -> None:
        for number, name in ((1, "out"), (2, "err")):
            os.dup2(os.open(folder / name, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600), number)

    return before


def _refused_elsewhere(folder: Path) -> None:
    err = (folder / "err").read_text(errors="replace")
    assert refused(Done(("on the full disk",), 1, "", err)), err


@knock_of(
    "read-only",
    "a folder, or a file in it, that may not be written, for a user who is not root",
    "one sentence, and nothing that was recorded is changed; when it may be written again, the end is the same",
    times=8,
    long=60,
)
@contextmanager
def read_only(folder: Path) -> Iterator[Try]:
    """Commands as another user, in a folder of root's."""
    if os.getuid() != 0:
        raise Skipped("only root can become another user")
    folder.chmod(0o755)
    with _place(folder) as place:

        def one(trial: Trial) -> str:
            here = copied(place.prepared.end, trial.folder / "here")
            before = rows(here / "run")
            name = COMMANDS[trial.number % len(COMMANDS)]
            if trial.chance.random() < 0.5:
                _forget(here, name)
            _permit(here, 0o555, 0o444)
            done = place.run(name, here, _as_nobody(trial.folder))
            if done.code:
                _refused_elsewhere(trial.folder)
            _permit(here, 0o755, 0o644)
            assert not before or not (here / "run").exists() or rows(here / "run").items() <= before.items()
            _finish(place, here)
            return f"{name} {'refused' if done.code else 'had nothing to write'}"

        yield one


def _forget(folder: Path, name: str) -> None:
    """Remove what a command writes, so that it has something to do."""
    out = {"generate": "run", "probe": "run", "export": "run.jsonl", "import": "in", "merge": "both", "fit": "rule.json"}
    path = folder / out.get(name, "report")
    shutil.rmtree(path) if path.is_dir() else path.unlink()


def _permit(folder: Path, folders: int, files: int) -> None:
    for path in (folder, *folder.rglob("*")):
        path.chmod(folders if path.is_dir() else files)


def _as_nobody(folder: Path) -> Callable[[], None]:
    streams = _quiet_streams(folder)

    def before() -> None:
        streams()
        os.setgid(NOBODY)
        os.setuid(NOBODY)

    return before


PAIRS = (
    ("generate", "generate"),
    ("generate", "report"),
    ("generate", "merge"),
    ("probe", "probe"),
    ("probe", "export"),
    ("probe", "generate"),
    ("import", "import"),
    ("merge", "merge"),
    ("report", "report"),
    ("fit", "fit"),
)


@knock_of(
    "two-processes",
    "two commands at the same time on one run",
    "each does its work or says in a sentence that another one writes; afterwards the end is the same",
    times=10,
    long=60,
)
@contextmanager
def two_processes(folder: Path) -> Iterator[Try]:
    """Pairs in turn, the second a little later than the first."""
    with _place(folder) as place:

        def one(trial: Trial) -> str:
            first, second = PAIRS[trial.number % len(PAIRS)]
            here = trial.folder / "here"
            here.mkdir()
            for name in COMMANDS[: COMMANDS.index(first)]:
                if name != "import":
                    assert not refused(place.run(name, here))
            children = [Child(place.commands[first], here)]
            time.sleep(trial.chance.uniform(0, 0.5))
            children.append(Child(place.commands[second], here))
            ends = [refused(child.wait()) for child in children]
            if second == "merge" != first:
                _remove_early_merge(here, place.prepared.end)
            _finish(place, here)
            return f"{first} and {second}: {sum(ends)} refused"

        yield one


def _remove_early_merge(folder: Path, end: Path) -> None:
    """A merge before the probes were made holds what there was then: only rows of the end. It is made again afterwards."""
    if (folder / "both").exists():
        assert rows(folder / "both").keys() <= rows(end / "both").keys()
        shutil.rmtree(folder / "both")


@knock_of(
    "clock",
    "the clock of the machine jumps by up to ten years, back or forth, at every look at it",
    "the same rows and files as with a steady clock",
    times=3,
    long=20,
)
@contextmanager
def clock(folder: Path) -> Iterator[Try]:
    """Every command under a jumping clock."""
    with _place(folder) as place:

        def one(trial: Trial) -> str:
            here = trial.folder / "here"
            here.mkdir()
            for name in COMMANDS:
                assert not refused(place.run(name, here, _jumping(trial.chance.randrange(1 << 30))))
            _finish(place, here)
            return "same end"

        yield one


def _jumping(seed: int) -> Callable[[], None]:
    """In the child: `time.time` and `datetime.now` return another time at each call."""

    def before() -> None:
        chance, real = random.Random(seed), time.time

        def jump() -> float:
            return real() + chance.uniform(-1, 1) * 10 * 365 * 86400

        class Jumping(datetime_module.datetime):
            @classmethod
            def now(cls, tz: datetime_module.tzinfo | None = None) -> Jumping:
                return cls.fromtimestamp(jump(), tz)

        time.time = jump
        for module in [*sys.modules.values()]:
            if getattr(module, "__name__", "").startswith("cgr.") and getattr(module, "datetime", None):
                module.__dict__["datetime"] = Jumping

    return before
