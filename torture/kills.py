"""SIGKILL at random moments: nothing that was recorded is lost or doubled, and the end is as if nothing had happened."""

from __future__ import annotations

import math
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, cast

from cgr.lab.store import Store
from cgr.lab.store.recorded import RecordedTrace
from cgr.lab.store.schema import FILE, LOCK
from cgr.records import Probe, Record, Token
from torture.knocks import Trial, Try, knock_of
from torture.processes import Child, copied, preload, refused, succeed
from torture.upstream import upstream_process

QUESTIONS = ("--questions", "arithmetic", "--limit", "2", "--budget", "128")
PROBE = ("probe", "run", "--interval", "32", "--quiet")
REPORT = ("report", "run", "--out", "report")
Rows = dict[tuple[str, int, str], RecordedTrace]
TOLERANCE = 1e-4  # of log-probabilities that llama.cpp computes in batches of another size


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Commands of which the one at `killed` is killed; those before it are run once for all trials. `exact`: the model
    gives the same numbers to the last bit, so every file must be the same byte for byte."""

    commands: tuple[tuple[str, ...], ...]
    killed: int
    run: str = "run"
    exact: bool = True


def pipelines(address: str) -> dict[str, Pipeline]:
    """Each command in turn, on a server whose model is exact; `generate` and `probe` also on the embedded model."""
    server = ("--base-url", address)
    generate = ("generate", *QUESTIONS, "--seeds", "2", "--out", "run", "--quiet")
    part = ("generate", *QUESTIONS, "--seeds", "1", "--out", "part", "--quiet", *server)
    usual = ((*generate, *server), (*PROBE, *server), REPORT)
    export, report = ("export", "run", "run.jsonl"), ("report", "in", "--out", "report")
    into, both = ("import", "run.jsonl", "in"), ("merge", "part", "run", "--out", "both")
    return {
        "generate": Pipeline(usual, 0),
        "probe": Pipeline(usual, 1),
        "report": Pipeline(usual, 2),
        "import": Pipeline((*usual[:2], export, into, report), 3, "in"),
        "merge": Pipeline((*usual[:2], part, both, ("report", "both", "--out", "report")), 3, "both"),
        "fit": Pipeline((*usual[:2], ("fit", "run", "--rule", "cgr", "--out", "rule.json")), 2),
        "embedded generate": Pipeline((generate, PROBE), 0, exact=False),
        "embedded probe": Pipeline((generate, PROBE), 1, exact=False),
    }


@dataclass(frozen=True, slots=True)
class Prepared:
    """A pipeline before its killed command (`start`), after its end (`end`), and how long that command takes."""

    pipeline: Pipeline
    start: Path
    end: Path
    seconds: float


@knock_of(
    "kill",
    "SIGKILL at random moments of generate, probe, report, import, merge and fit, up to three times in a row",
    "no recorded row is lost or doubled, no process is left, and after repeating the command every file is the same",
    times=18,
    long=200,
    mended=("`cgr import` and `cgr merge` refused a folder in which a killed one had left a file without tables.",),
)
@contextmanager
def kill(folder: Path) -> Iterator[Try]:
    """Pipelines in turn: killed, repeated, compared with the pipeline that was not killed."""
    preload()
    prepared: dict[str, Prepared] = {}
    with upstream_process() as address:
        known = pipelines(address)

        def one(trial: Trial) -> str:
            name = [*known][trial.number % len(known)]
            if name not in prepared:
                prepared[name] = prepare(known[name], folder / name)
            return f"{name} {_killed(prepared[name], trial)}"

        yield one


def prepare(pipeline: Pipeline, folder: Path) -> Prepared:
    """Run a pipeline without a kill."""
    start, end = folder / "start", folder / "end"
    start.mkdir(parents=True)
    for command in pipeline.commands[: pipeline.killed]:
        succeed(*command, folder=start)
    copied(start, end)
    began = time.monotonic()
    succeed(*pipeline.commands[pipeline.killed], folder=end)
    seconds = time.monotonic() - began
    for command in pipeline.commands[pipeline.killed + 1 :]:
        succeed(*command, folder=end)
    return Prepared(pipeline, start, end, seconds)


def _killed(prepared: Prepared, trial: Trial) -> str:
    pipeline, place = prepared.pipeline, copied(prepared.start, trial.folder)
    command = pipeline.commands[pipeline.killed]
    wanted, hits = rows(prepared.end / pipeline.run), 0
    recorded: Rows = {}
    for _ in range(trial.chance.randint(1, 3)):
        child = Child(command, place)
        time.sleep(trial.chance.uniform(0, prepared.seconds))
        hits += child.running()
        child.kill()
        child.wait()
        child.wait_for_group()
        now = rows(place / pipeline.run)
        assert recorded.items() <= now.items(), "a row that was recorded before the kill is gone or changed"
        assert now.keys() <= wanted.keys(), "a row after the kill is not what an undisturbed command records"
        recorded = now
    _resume(pipeline, place)
    final = rows(place / pipeline.run)
    assert recorded.items() <= final.items(), "a row that was recorded before the kill is gone or changed"
    compare_rows(final, wanted, exact=pipeline.exact)
    compare_files(place, prepared.end)
    return "killed" if hits else "had ended"


def _resume(pipeline: Pipeline, place: Path) -> None:
    """Repeat the command that was killed. One that had finished may refuse to do its work twice, in a sentence."""
    done = Child(pipeline.commands[pipeline.killed], place).wait()
    if refused(done):
        assert "already" in done.err, (done.arguments, done.err)
    for command in pipeline.commands[pipeline.killed + 1 :]:
        succeed(*command, folder=place)


def rows(run: Path) -> Rows:
    """All of a run that does not depend on the clock, by question, seed and probe set; nothing if there is no run."""
    if not (run / FILE).is_file() or not _has_tables(run / FILE):
        return {}
    with Store.open(run) as store:
        found = [("", one) for one in store.recorded(None, whole=True)]
        for name in store.probe_sets():
            found += [(name, one) for one in store.recorded(name, whole=True)]
    by_key = {(one.question_id, one.seed, name): _timeless(one) for name, one in found}
    assert len(by_key) == len(found), "a row is doubled"
    return by_key


def _has_tables(file: Path) -> bool:
    """False for a file that was created, and whose process was killed before it wrote anything."""
    db = sqlite3.connect(file)
    try:
        return bool(db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0])
    finally:
        db.close()


def _difference(here: RecordedTrace, there: RecordedTrace) -> str:
    names = [one.name for one in fields(there) if getattr(here, one.name) != getattr(there, one.name)]
    return "; ".join(f"{name} is {getattr(here, name)!r:.300} and was {getattr(there, name)!r:.300}" for name in names)


def _timeless(trace: RecordedTrace) -> RecordedTrace:
    return replace(trace, probes=tuple(map(_costless, trace.probes)), final=_costless(trace.final))


def _costless(probe: Probe) -> Probe:
    return replace(probe, seconds=0.0, prefilled=0, cached=0)


def compare_rows(here: Rows, there: Rows, *, exact: bool) -> None:
    """The same rows; unless `exact`, log-probabilities and probabilities may differ by rounding."""
    assert here.keys() == there.keys(), f"other rows than an undisturbed command records: {here.keys() ^ there.keys()}"
    for key, row in there.items():
        assert here[key] == row if exact else _close(here[key], row), f"{key} differs: {_difference(here[key], row)}"


def _close(a: object, b: object) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return math.isclose(a, b, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(_close, a, b))
    if isinstance(a, Record | Token) and type(a) is type(b):
        return all(_close(getattr(a, one.name), getattr(b, one.name)) for one in fields(cast(Any, a)))
    return a == b


def compare_files(place: Path, wanted: Path) -> None:
    """Every file but runs and exports, which hold times, is the same. A draft of a killed command may be left."""
    names, expected = (
        {str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()} for folder in (place, wanted)
    )
    stores = {FILE, LOCK, f"{FILE}-wal", f"{FILE}-shm"}
    names, expected = (
        {name for name in some if Path(name).name not in stores and not name.endswith(".jsonl")}
        for some in (names, expected)
    )
    drafts = {name for name in names if Path(name).name.startswith(".cgr-")}
    assert names - drafts == expected, f"other files than an undisturbed command leaves: {sorted(names ^ expected)}"
    for name in expected:
        assert (place / name).read_bytes() == (wanted / name).read_bytes(), f"{name} differs"
