"""Tokens per second of the embedded model with many sessions, against plain requests to the same server; and their memory.

python -m benchmarks.speed --sessions 32    # one measurement in a process of its own, as JSON
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import resource
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import click

from benchmarks.rows import Results, Row
from cgr.engines.base import Sampling, keyed_seed
from cgr.engines.llama import LlamaEngine
from cgr.engines.wire import thinking_body
from cgr.model.problems import unseen
from cgr.settings import INSTRUCTION
from cgr.solve import open_model

SESSIONS = (1, 8, 32)
TOKENS = 384
ROUNDS = 3
Work = Callable[[LlamaEngine, Sequence[int], int, int], Awaitable[int]]


async def by_sessions(engine: LlamaEngine, prompt: Sequence[int], seed: int, tokens: int) -> int:
    session = await engine.open(prompt, Sampling(seed=seed), room=tokens)
    try:
        return len((await session.think(tokens)).ids)
    finally:
        await session.close()


async def by_requests(engine: LlamaEngine, prompt: Sequence[int], seed: int, tokens: int) -> int:
    """The same as one plain request: what the server gives by itself."""
    here = engine._here()
    slots = await here.free.get()
    try:
        body = thinking_body(prompt, tokens, Sampling(), keyed_seed(seed, 0), slots[0])
        return len((await here.wire.complete(body)).ids)
    finally:
        here.free.put_nowait(slots)


@dataclass(frozen=True, slots=True)
class Rate:
    """Tokens for each second on the clock, and for each second of this process's computing, which a busy machine leaves
    alone; `client` is the share of the latter that is ours and not the server's."""

    clock: float
    computing: float
    client: float


async def rate(engine: LlamaEngine, prompts: Sequence[Sequence[int]], work: Work, sessions: int, tokens: int) -> Rate:
    """With so many at once, all begun together."""
    began, busy, ours = time.perf_counter(), time.process_time(), time.thread_time()
    made = sum(await asyncio.gather(*(work(engine, prompts[n % len(prompts)], n, tokens) for n in range(sessions))))
    computed = time.process_time() - busy
    return Rate(made / (time.perf_counter() - began), made / computed, (time.thread_time() - ours) / computed)


async def measure(sessions: int, tokens: int, rounds: int) -> dict[str, Any]:
    """In turn, round by round; the ratio is the median of the rounds'."""
    before = peak()
    async with open_model(sessions=sessions, budget=tokens) as model:
        engine = model.engine
        assert isinstance(engine, LlamaEngine)
        problems = itertools.islice(unseen(1, families=("map", "product"), levels=(6,)), 32)  # too long to end early
        prompts = [await engine.prompt(f"{problem.text}\n{INSTRUCTION}") for problem in problems]
        await rate(engine, prompts, by_requests, sessions, 32)
        pairs: list[tuple[Rate, Rate]] = []
        for _ in range(rounds):
            bare = await rate(engine, prompts, by_requests, sessions, tokens)
            pairs.append((await rate(engine, prompts, by_sessions, sessions, tokens), bare))
    return {
        "sessions": sessions,
        "tokens_per_second": median(ours.clock for ours, _ in pairs),
        "bare": median(bare.clock for _, bare in pairs),
        "ratio": median(ours.clock / bare.clock for ours, bare in pairs),
        "ratio_of_computing": median(ours.computing / bare.computing for ours, bare in pairs),
        "client_share": median(ours.client for ours, _ in pairs),
        "megabytes": peak(),
        "megabytes_before": before,
    }


def peak() -> float:
    """The most memory that this process had, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024 if sys.platform != "darwin" else 1 << 20)


def speed(results: Results) -> None:
    """Each number of sessions in a process of its own, so that its memory can be told."""
    rounds, tokens = (1, 128) if results.quick else (ROUNDS, TOKENS)
    for sessions in SESSIONS:
        call = [sys.executable, "-m", "benchmarks.speed", "--sessions", str(sessions)]
        call += ["--rounds", str(rounds), "--tokens", str(tokens)]
        found = json.loads(subprocess.run(call, check=True, capture_output=True, text=True).stdout)
        results.curves.setdefault("tokens per second", []).append(found)
        what = f"tokens a second with {sessions} sessions, over plain requests ({found['bare']:.0f} a second)"
        results.rows.append(Row(what, "embedded, llama.cpp", found["ratio"], sense="at least", hold=0.9, detail=found))
    what = f"peak memory of {sessions} sessions of {tokens} tokens"
    results.rows.append(Row(what, "embedded, llama.cpp", found["megabytes"], unit="MB", detail=found))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sessions", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=TOKENS)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    asked = parser.parse_args()
    click.echo(json.dumps(asyncio.run(measure(asked.sessions, asked.tokens, asked.rounds))))


if __name__ == "__main__":
    main()
