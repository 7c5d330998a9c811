"""Runs with a known risk, for tests of promises."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from cgr.lab.decide.run import Run
from cgr.lab.exchange import import_run, write_jsonl
from cgr.lab.exchange.line import to_line
from cgr.lab.store import Store
from cgr.lab.store.config import Asking, ProbeSet, RunConfig
from cgr.lab.store.recorded import RecordedTrace, RunInfo
from cgr.records import Ended, Probe, Question

BUDGET, INTERVAL = 400, 100
INFO = RunInfo("made-up", "a model", "none", BUDGET, INTERVAL)
CONFIG = RunConfig(model="a model", engine="none", budget=BUDGET, interval=INTERVAL, fingerprint="abc", asking=Asking())
SET = ProbeSet("interval", INTERVAL, Asking(), "a model", "abc")


def probe(at: int, answer: str, certainty: float) -> Probe:
    return Probe(at, answer, certainty, True, (certainty,), decoded=2)


def trace(
    name: str, seed: int, early: tuple[str, float], *, final: str = "7", gold: str | None = "7", certainty: float = 0.999
) -> RecordedTrace:
    """A trace of 400 tokens: at 100 it says `early`, with its certainty; then it is unsure, and ends with `final`."""
    probes = (probe(100, *early), probe(200, final, 0.3), probe(300, final, 0.3))
    ended: Ended = "end_of_thinking"
    return RecordedTrace(name, seed, gold, BUDGET, ended, BUDGET, probe(BUDGET, final, certainty), probes, f"{name}?")


def traces(
    questions: int, *, seeds: int = 1, wrong: Sequence[tuple[int, float]] = (), sure: float = 0.97
) -> list[RecordedTrace]:
    """Every trace says its final answer early with the certainty `sure`, except the first seed of these questions, which
    says another answer with this certainty."""
    others = dict(wrong)
    return [
        trace(f"q{n}", seed, ("3", others[n]) if n in others and not seed else ("7", sure))
        for n in range(questions)
        for seed in range(seeds)
    ]


def drawn(seed: int, questions: int, seeds: int = 1, risk: float = 0.05) -> list[RecordedTrace]:
    """Certainties all over; a sure answer is another than the final one with a chance that falls with the certainty."""
    rng = np.random.default_rng(seed)
    found = []
    for n in range(questions):
        for one in range(seeds):
            level = float(1 - 0.5 * rng.random() ** 2)
            other = rng.random() < risk * (1 - level) / 0.1
            found.append(trace(f"q{n}", one, ("3" if other else "7", level), gold="7" if rng.random() < 0.8 else "9"))
    return found


def run_of(found: list[RecordedTrace]) -> Run:
    return Run.of(found, INFO)


def stored(folder: Path, found: list[RecordedTrace], config: RunConfig = CONFIG, probe_set: ProbeSet = SET) -> Path:
    """A run in a folder, as `cgr generate --probe` leaves it."""
    with Store.create(folder, config) as store:
        store.add_questions({one.question_id: _question(one) for one in found}.values())
        name = store.add_probe_set(probe_set)
        for one in found:
            store.add_trace(one, prompt_ids=(1, 2), seconds=1.5, probe_set=name)
    return folder


def _question(one: RecordedTrace) -> Question:
    return Question(one.question_id, one.question, one.gold, one.format)


def imported(folder: Path, found: list[RecordedTrace]) -> Path:
    """A run from a file of lines."""
    path = folder.with_suffix(".jsonl")
    write_jsonl(path, [to_line(one, (), CONFIG, SET) for one in found])
    import_run(path, folder)
    return folder
