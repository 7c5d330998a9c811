"""Runs on disk for the tests of ablations: traces like those of a reasoning model, with several probe sets."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from cgr.lab.store import DEFAULT, Store
from cgr.lab.store.config import Asking, ProbeSet, RunConfig
from cgr.lab.store.recorded import RecordedTrace
from cgr.records import Probe, Question, Token
from tests.lab.runs import plausible

INTERVAL, BUDGET = 1000, 8000
CONFIG = RunConfig(
    model="thinker", engine="scripted", budget=BUDGET, interval=INTERVAL, source="arithmetic", fingerprint="t"
)


def probe_set(**other: object) -> ProbeSet:
    own = ProbeSet("interval", INTERVAL, Asking(), "thinker", "t")
    return replace(own, **other)  # type: ignore[arg-type]


def with_tokens(probe: Probe, brace: float = 0.9) -> Probe:
    """Each digit is a token, and the brace is one of its own."""
    chances = [*probe.probabilities, *((brace,) if probe.closed else ())]
    texts = [*probe.answer, *(("}",) if probe.closed else ())]
    tokens = tuple(Token(0, text, math.log(chance)) for text, chance in zip(texts, chances, strict=True))
    return replace(probe, tokens=tokens, suffix="Final Answer: \\boxed{")


def traces(questions: int = 6, seeds: int = 4, **options: int) -> list[RecordedTrace]:
    made, _ = plausible(questions, seeds, budget=BUDGET, interval=options.pop("interval", INTERVAL), **options)  # type: ignore[arg-type]
    return [replace(one, probes=tuple(map(with_tokens, one.probes))) for one in made]


def run(folder: Path, made: Sequence[RecordedTrace], config: RunConfig = CONFIG, own: ProbeSet | None = None) -> Path:
    """These traces as a run, with their probes as its default set."""
    with Store.create(folder, config) as store:
        store.add_questions(
            {one.question_id: Question(one.question_id, one.question, one.gold, "integer") for one in made}.values()
        )
        name = store.add_probe_set(own or probe_set(), DEFAULT)
        for one in made:
            store.add_trace(one, probe_set=name)
    return folder


def add(folder: Path, name: str, made: Sequence[RecordedTrace], produced: ProbeSet) -> None:
    """Add the probes of these traces as another probe set of the run."""
    with Store.open(folder, write=True) as store:
        store.add_probe_set(produced, name)
        for one in made:
            store.add_probing((one.question_id, one.seed), name, one.probes, one.final)
