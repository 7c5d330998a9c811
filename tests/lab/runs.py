"""Runs for tests: the six traces of the worked example, and larger ones that look like a reasoning model's."""

from __future__ import annotations

import random
from collections.abc import Sequence

from cgr.lab.store.recorded import RecordedTrace, RunInfo
from cgr.records import Ended, Probe

SIX_INFO = RunInfo(name="six", model="worked example", engine="import", budget=4000, interval=1000)
Asked = tuple[int, str, tuple[float, ...], bool]


def probe(at: int, answer: str, probabilities: Sequence[float], closed: bool = True, bound: bool = False) -> Probe:
    decoded = len(probabilities) + closed
    return Probe(at, answer, min(probabilities, default=0.0), closed, tuple(probabilities), decoded=decoded, bound=bound)


def trace(
    question: str,
    seed: int,
    gold: str | None,
    tokens: int,
    ended: Ended,
    final: tuple[str, float],
    probes: Sequence[Asked] = (),
    *,
    budget: int = 4000,
    closed: bool = True,
) -> RecordedTrace:
    asked = tuple(probe(at, answer, list(chances), shut) for at, answer, chances, shut in probes)
    last = Probe(tokens, final[0], final[1], closed)
    return RecordedTrace(question, seed, gold, tokens, ended, budget, last, asked)


def six() -> list[RecordedTrace]:
    """Two seeds of three questions; budget 4000, a probe every 1000."""
    return [
        trace(
            *("a", 0, "70", 3500, "end_of_thinking", ("70", 0.999)),
            [
                (1000, "12", (0.41, 0.8), True),
                (2000, "70", (0.985, 0.992), True),
                (3000, "70", (0.9995, 0.998), True),
            ],
        ),
        trace(
            *("b", 0, "588", 4000, "budget", ("588", 0.9)),
            [
                (1000, "588", (0.2, 0.9, 0.95), True),
                (2000, "580", (0.975, 0.99, 0.98), True),
                (3000, "588", (0.9, 0.95, 0.97), True),
            ],
        ),
        trace("c", 0, "16", 1800, "end_of_thinking", ("16", 0.97), [(1000, "16", (0.965, 0.99), True)]),
        trace(
            *("a", 1, "70", 2000, "end_of_thinking", ("71", 0.995)),
            [(1000, "70", (0.3, 0.5), True), (2000, "70", (0.962, 0.999), True)],
        ),
        trace(
            *("b", 1, "588", 4000, "budget", ("\\frac{5", 0.5)),
            [
                (1000, "\\frac{5", (0.999, 0.999, 0.999, 0.999), False),
                (2000, "5", (0.6,), True),
                (3000, "588", (0.99, 0.995, 0.991), True),
            ],
            closed=False,
        ),
        trace("c", 1, "16", 900, "end_of_thinking", ("16", 0.9)),
    ]


def plausible(
    questions: int = 6,
    seeds: int = 4,
    *,
    budget: int = 8000,
    interval: int = 1000,
    chance: int = 0,
    skill: float = 0.6,
    name: str = "plausible",
) -> tuple[list[RecordedTrace], RunInfo]:
    """Traces as a reasoning model leaves them: unsure guesses, then an answer it grows sure of, then more thinking."""
    info = RunInfo(name=name, model=name, engine="scripted", budget=budget, interval=interval)
    rng = random.Random(chance)
    golds = [str(rng.randint(0, 999)) for _ in range(questions)]
    hard = sorted(rng.random() for _ in range(questions))
    traces = [
        _thought(f"q{number + 1:02}", seed, golds[number], hard[number] / (0.4 + skill), rng, info)
        for number in range(questions)
        for seed in range(seeds)
    ]
    return traces, info


def _thought(question: str, seed: int, gold: str, hard: float, rng: random.Random, info: RunInfo) -> RecordedTrace:
    """Guesses until `early`, a first belief that may be wrong from there, what it ends up with from `found`."""
    found = int(info.budget * min(hard, 1.5) * rng.lognormvariate(-0.5, 0.5)) + info.interval // 2
    early = found // 2 if rng.random() < 0.5 else found
    length = min(int(found * rng.uniform(1.1, 2.2)) + info.interval, info.budget)
    settled = gold if rng.random() > 0.75 * hard**1.5 else str(rng.randint(0, 999))
    first = settled if rng.random() < 0.7 else str(rng.randint(0, 999))

    def asked(at: int) -> Probe:
        if at < early:
            return _asked(at, str(rng.randint(0, 999)), rng.betavariate(1.6, 4), rng)
        answer, since = (settled, at - found) if at >= found else (first, at - early)
        doubt = 0.35 / (1 + since / info.interval) ** 1.5 + 0.25 * (answer != gold) * rng.random()
        return _asked(at, answer, 1 - rng.betavariate(1, 6) * doubt, rng)

    probes = tuple(map(asked, range(info.interval, min(length, info.budget - 1) + 1, info.interval)))
    ended: Ended = "end_of_thinking" if length < info.budget else "budget"
    text = f"What is {question}?"
    return RecordedTrace(question, seed, gold, length, ended, info.budget, asked(length), probes, question=text)


def _asked(at: int, answer: str, level: float, rng: random.Random) -> Probe:
    """As sure as its least sure digit."""
    others = (level + (1 - level) * rng.random() for _ in answer[1:])
    return probe(at, answer, (level, *others), closed=rng.random() > 0.01)
