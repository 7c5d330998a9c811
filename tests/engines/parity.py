"""Two engines on the same token ids: the likeliest next tokens and the answers to probes must agree.

`read` works with any engine, so a test of another one is two lines: `read` and `assert_parity`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cgr.certainty import probability
from cgr.engines.base import Engine, Sampling
from cgr.lab.questions import arithmetic
from cgr.lab.record.generate import Plan, agenerate
from cgr.lab.store import Store
from cgr.records import Probe, Token
from cgr.settings import Settings
from tests.engines.hf.models import SPEC

TRACES, BUDGET, INTERVAL, STRIDE = 50, 400, 32, 11
TOLERANCE = 1e-3


@dataclass(frozen=True, slots=True)
class Saved:
    """The ids of a prompt and of the thinking after it."""

    prompt: tuple[int, ...]
    trace: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Next:
    """The likeliest next token at a position, and how much likelier it is than the second."""

    at: int
    token: int
    lead: float


@dataclass(frozen=True, slots=True)
class Reading:
    """What an engine computes for one trace."""

    nexts: tuple[Next, ...]
    probes: tuple[Probe, ...]


async def save(engine: Engine, folder: Path, *, traces: int = TRACES, sessions: int = 1) -> list[Saved]:
    """Traces of different questions, made and stored by the lab."""
    plan = Plan(arithmetic.make(traces, 7), 1, Settings(budget=BUDGET, temperature=1.0), written_tokens=0)
    await agenerate(folder, plan, engine, sessions=sessions)
    with Store.open(folder) as store:
        return [Saved(store.prompt_ids(key), store.trace(key).ids) for key in store.made()]


async def read(engine: Engine, traces: Sequence[Saved]) -> list[Reading]:
    """What the engine computes for every trace, on as many sessions as it has."""
    return list(await asyncio.gather(*(_read(engine, saved) for saved in traces)))


async def _read(engine: Engine, saved: Saved) -> Reading:
    suffix = await engine.encode(SPEC.prefix)
    session = await engine.open(saved.prompt, Sampling(temperature=0.0), room=len(saved.trace) + len(suffix) + 8)
    nexts: list[Next] = []
    probes: list[Probe] = []
    at = 0
    try:
        for cut in sorted({*range(STRIDE, len(saved.trace), STRIDE), *range(INTERVAL, len(saved.trace), INTERVAL)}):
            await session.append(saved.trace[at:cut])
            at = cut
            if at % STRIDE == 0:
                answered = await session.probe((), 1, lambda tokens: True, top=5)
                nexts.append(_next(at, answered.tokens[0]))
            if at % INTERVAL == 0:
                answered = await session.probe(suffix, SPEC.max_answer_tokens, SPEC.done())
                probes.append(SPEC.read(at, answered.tokens, answered.ended))
    finally:
        await session.close()
    return Reading(tuple(nexts), tuple(probes))


def _next(at: int, token: Token) -> Next:
    best, second = sorted((probability(logprob) for _, logprob in token.top), reverse=True)[:2]
    return Next(at, token.id, best - second)


def assert_parity(one: Sequence[Reading], other: Sequence[Reading]) -> None:
    """The same likeliest token wherever its lead is clear, and the same answer and certainty for every probe."""
    compared = 0
    for here, there in zip(one, other, strict=True):
        for a, b in zip(here.nexts, there.nexts, strict=True):
            if min(a.lead, b.lead) > TOLERANCE:
                assert a.token == b.token, f"after {a.at} tokens"
                compared += 1
        for probe, same in zip(here.probes, there.probes, strict=True):
            assert (probe.answer, probe.closed) == (same.answer, same.closed), f"after {probe.at} tokens"
            assert abs(probe.certainty - same.certainty) <= TOLERANCE, f"after {probe.at} tokens"
    assert compared > 0
    assert any(reading.probes for reading in one)
