"""Damaged runs: cut short, with flipped bytes, of a newer version. A sentence, or the same result; never a wrong one."""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from cgr.lab.store.schema import FILE
from torture.kills import PROBE, QUESTIONS
from torture.knocks import Setup, Trial, Try, knock_of
from torture.processes import called, preload, refused, succeed
from torture.upstream import upstream_process

Damage = Callable[[Path, random.Random], None]
SETS = ("default", "start")  # exported one by one, so that every probe is read


def damaged(spoil: Damage) -> Setup:
    """Trials that spoil a copy of a probed run, and read all of it by `cgr export`, `cgr runs` and `cgr probe`."""

    @contextmanager
    def setup(folder: Path) -> Iterator[Try]:
        preload()
        with upstream_process() as address:
            whole = _recorded(folder / "whole", address)
        wanted = _read(whole)

        def one(trial: Trial) -> str:
            run = trial.folder / "run"
            shutil.copytree(whole, run)
            spoil(run / FILE, trial.chance)
            before = (run / FILE).read_bytes()
            found = _read(run)
            refused(called("runs", str(trial.folder)))
            assert (run / FILE).read_bytes() == before, "reading changed the file"
            shutil.rmtree(run)
            wrong = [name for name, text in found.items() if text is not None and text != wanted[name]]
            assert not wrong, f"a wrong result: {_first_difference(found[wrong[0]], wanted[wrong[0]])}"
            return "refused" if None in found.values() else "same result"

        yield one

    return setup


def _recorded(folder: Path, address: str) -> Path:
    """A run with two probe sets. The model is the fake upstream, which is fast."""
    folder.mkdir()
    server = ("--base-url", address)
    succeed("generate", *QUESTIONS, "--seeds", "2", "--out", "run", "--quiet", "--logprobs", *server, folder=folder)
    succeed(*PROBE, *server, folder=folder)
    succeed("probe", "run", "--at", "start", "--quiet", *server, folder=folder)
    (folder / "run" / "run.lock").unlink()
    return folder / "run"


def _read(run: Path) -> dict[str, str | None]:
    """Each probe set as lines of JSON; None where it was refused."""
    found: dict[str, str | None] = {}
    for name in SETS:
        out = run.parent / f"{name}.jsonl"
        found[name] = None if refused(called("export", str(run), str(out), "--probes", name)) else out.read_text()
    return found


def _first_difference(found: str | None, wanted: str | None) -> str:
    a, b = found or "", wanted or ""
    at = next((number for number, (one, other) in enumerate(zip(a, b, strict=False)) if one != other), min(len(a), len(b)))
    return f"{a[max(at - 60, 0) : at + 60]!r} and not {b[max(at - 60, 0) : at + 60]!r}"


def _cut(file: Path, chance: random.Random) -> None:
    with file.open("r+b") as opened:
        opened.truncate(chance.randrange(file.stat().st_size))


def _flip(file: Path, chance: random.Random) -> None:
    data = bytearray(file.read_bytes())
    for _ in range(chance.choice((1, 1, 1, 2, 8, 64))):
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    file.write_bytes(data)


def _newer(file: Path, chance: random.Random) -> None:
    db = sqlite3.connect(file)
    db.execute(f"PRAGMA user_version = {chance.randint(1000, 2**31 - 1)}")
    db.close()


FLIPPED = (
    "a flipped bit in a stored number or text changed a result without a word; rows now have check sums.",
    "a flipped bit in the description of a table made `cgr export` end in an exception.",
)
PROMISE = "one sentence, or the same result to the last byte; reading never changes the file"
cut = knock_of("store-cut", "the file of a run is cut short at a random byte", PROMISE, times=300, long=3000)(damaged(_cut))
flip = knock_of(
    "store-flip", "1 to 64 random bits of the file of a run are flipped", PROMISE, times=300, long=5000, mended=FLIPPED
)(damaged(_flip))
newer = knock_of("store-newer", "a run of a newer version of cgr", PROMISE, times=10, long=100)(damaged(_newer))
