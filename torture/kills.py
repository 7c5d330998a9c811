"""SIGKILL at random moments: nothing that was recorded is lost or doubled, and the end is as if nothing had happened."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from torture.knocks import Trial, Try, knock_of
from torture.processes import Child, copied, preload, refused, succeed
from torture.recorder import killed_recorder, undisturbed
from torture.runs import Rows, compare_files, compare_rows, rows
from torture.upstream import upstream_process

QUESTIONS = ("--questions", "arithmetic", "--limit", "2", "--budget", "128")
PROBE = ("probe", "run", "--interval", "32", "--quiet")
RECORDER = "shadow recorder"
REPORT = ("report", "run", "--out", "report")


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
    "SIGKILL at random moments of generate, probe, report, import, merge, fit and `cgr serve --shadow`, up to three times "
    "in a row",
    "no recorded row is lost or doubled, no process is left, and after repeating the command every file is the same",
    times=18,
    long=200,
    mended=(
        "`cgr import` and `cgr merge` refused a folder in which a killed one had left a file without tables.",
        "a killed command could leave a file `run.lock-journal` in the folder of a run.",
        "`cgr serve --shadow` refused its own folder if it was killed while it wrote the key of the recording.",
        "`cgr merge` took equal replies that two workers had recorded for one and the same.",
    ),
)
@contextmanager
def kill(folder: Path) -> Iterator[Try]:
    """Pipelines in turn: killed, repeated, compared with the pipeline that was not killed."""
    preload()
    prepared: dict[str, Prepared] = {}
    with upstream_process() as address:
        known = pipelines(address)
        recorder = cache(lambda: undisturbed(folder / RECORDER, address))

        def one(trial: Trial) -> str:
            name = (*known, RECORDER)[trial.number % (len(known) + 1)]
            if name == RECORDER:
                return f"{name} {killed_recorder(trial, address, *recorder())}"
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
