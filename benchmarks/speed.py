"""Tokens per second of the embedded model with many sessions, compared with a bare loop on the same engine; and memory.

python -m benchmarks.speed --sessions 32                      # one measurement in its own process, as JSON
python -m benchmarks.speed --engine vllm:FOLDER --sessions 1 8 32
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import click

from benchmarks import memory
from benchmarks.rows import Results, Row
from cgr.engines.base import Engine, Sampling, keyed_seed
from cgr.engines.completions.engine import CompletionsEngine
from cgr.engines.llama.engine import cores
from cgr.engines.open import sessions_of
from cgr.lab.record.generate import Plan, generate_trace
from cgr.lab.record.jobs import in_tasks
from cgr.lab.store import Key
from cgr.lab.store.config import RunConfig
from cgr.model.problems import unseen
from cgr.records import Question
from cgr.settings import INSTRUCTION, Settings
from cgr.solve import open_model

SESSIONS = (1, 8, 32)
TOKENS = 384
ROUNDS = {1: 31, 8: 9, 32: 5}
TRACES_EACH = 4  # of each session at the default setting
Prompts = Sequence[Sequence[int]]
Loop = Callable[[Any, Prompts, int], Awaitable[int]]


async def by_sessions(engine: Engine, prompts: Prompts, tokens: int) -> int:
    """All prompts at once, each in a session. Returns the number of generated tokens."""

    async def one(number: int, prompt: Sequence[int]) -> int:
        session = await engine.open(prompt, Sampling(seed=number, limit=tokens), room=tokens)
        try:
            return len((await session.think(tokens)).ids)
        finally:
            await session.close()

    return sum(await asyncio.gather(*itertools.starmap(one, enumerate(prompts))))


async def plain_requests(engine: CompletionsEngine, prompts: Prompts, tokens: int) -> int:
    """The same with one plain request per prompt, without streaming: the speed of the server alone."""
    import aiohttp

    known = engine.connected
    headers = {"Authorization": f"Bearer {known.key}"} if known.key else {}
    connector, timeout = aiohttp.TCPConnector(limit=len(prompts)), aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(headers=headers, connector=connector, timeout=timeout) as client:

        async def one(number: int, prompt: Sequence[int]) -> int:
            body = {"model": engine.info.name, "prompt": list(prompt), "max_tokens": tokens, "temperature": 0.6}
            body |= {"top_p": 1.0, "top_k": -1, "min_p": 0.0, "seed": keyed_seed(number, 0)}
            address = known.addresses[number % len(known.addresses)]
            async with client.post(f"{address}/v1/completions", json=body) as reply:
                reply.raise_for_status()
                return int((await reply.json())["usage"]["completion_tokens"])

        return sum(await asyncio.gather(*itertools.starmap(one, enumerate(prompts))))


async def torch_loop(engine: Any, prompts: Prompts, tokens: int) -> int:
    """The same as one batch with a growing cache and plain sampling."""
    from benchmarks.torch_engine import alone, bare_loop

    middle = sorted(prompts, key=len)[len(prompts) // 2]  # the bare loop needs prompts of equal length
    await alone(engine, time.perf_counter, bare_loop, engine.loaded.model, [middle] * len(prompts), tokens)
    return tokens * len(prompts)


def bare_loop_of(engine: Engine) -> Loop:
    """The bare loop to compare this engine with."""
    return plain_requests if isinstance(engine, CompletionsEngine) else torch_loop


@dataclass(frozen=True, slots=True)
class Rate:
    """Tokens per second of wall-clock time, and per second of this process's CPU time, which other load on the machine does
    not change; `client` is the share of this thread in the CPU time."""

    clock: float
    computing: float
    client: float


async def rate(loop: Loop, engine: Engine, prompts: Prompts, tokens: int) -> Rate:
    """Run the loop once and measure its rates."""
    began, busy, ours = time.perf_counter(), time.process_time(), time.thread_time()
    made = await loop(engine, prompts, tokens)
    computed = time.process_time() - busy
    return Rate(made / (time.perf_counter() - began), made / computed, (time.thread_time() - ours) / computed)


async def measure(engine: Engine, sessions: int, tokens: int, rounds: int) -> dict[str, Any]:
    """Sessions and bare loop in each round, in alternating order. The ratio is the median over the rounds."""
    before, bare_loop = memory.peak(), bare_loop_of(engine)
    problems = itertools.islice(unseen(1, families=("map", "product"), levels=(6,)), 32)  # too long to finish early
    some = [await engine.prompt(f"{problem.text}\n{INSTRUCTION}") for problem in problems]
    prompts = [some[number % len(some)] for number in range(sessions)]
    await by_sessions(engine, prompts, 32)
    pairs: list[tuple[Rate, Rate]] = []
    for number in range(rounds):
        order = (by_sessions, bare_loop) if number % 2 else (bare_loop, by_sessions)
        found = {loop: await rate(loop, engine, prompts, tokens) for loop in order}
        pairs.append((found[by_sessions], found[bare_loop]))
    return {
        "sessions": sessions,
        "tokens_per_second": median(ours.clock for ours, _ in pairs),
        "bare": median(bare.clock for _, bare in pairs),
        "ratio": median(ours.clock / bare.clock for ours, bare in pairs),
        "ratios": sorted(round(ours.clock / bare.clock, 3) for ours, bare in pairs),
        "ratio_of_computing": median(ours.computing / bare.computing for ours, bare in pairs),
        "client_share": median(ours.client for ours, _ in pairs),
        "megabytes": memory.peak() + memory.of_children(),
        "megabytes_before": before,
    }


async def measure_all(spec: str, counts: Sequence[int], tokens: int, rounds: int | None) -> list[dict[str, Any]]:
    options: dict[str, Any] = {"budget": tokens} if spec == "embedded" else {"dtype": "float32"}
    async with open_model(spec, sessions=max(counts), **options) as model:
        return [await measure(model.engine, count, tokens, rounds or ROUNDS[count]) for count in counts]


def speed(results: Results, spec: str = "embedded", engine: str = "llama.cpp", *, separate: bool = True) -> None:
    """Measure each number of sessions in its own process, so that its memory can be measured. `separate` False: all in one
    process, for an engine that starts slowly."""
    tokens = 128 if results.quick else TOKENS
    curve: list[dict[str, Any]] = []
    results.curves[f"tokens per second, {engine}"] = curve
    for counts in [(count,) for count in SESSIONS] if separate else [SESSIONS]:
        call = [sys.executable, "-m", "benchmarks.speed", "--engine", spec, "--tokens", str(tokens)]
        call += ["--rounds", "1"] if results.quick else []
        call += ["--sessions", *map(str, counts)]
        curve += json.loads(subprocess.run(call, check=True, stdout=subprocess.PIPE, text=True).stdout)
    against = "plain requests" if engine != "transformers" else "a bare loop"
    for found in curve:
        sessions = "1 session" if found["sessions"] == 1 else f"{found['sessions']} sessions"
        what = f"tokens a second with {sessions}, over {against} ({found['bare']:.0f} a second)"
        row = Row(what, f"embedded, {engine}", found["ratio"], sense="at least", hold=0.9, detail=found)
        results.rows.append(row)
    what = f"peak memory of {curve[-1]['sessions']} sessions of {tokens} tokens"
    results.rows.append(Row(what, f"embedded, {engine}", curve[-1]["megabytes"], unit="MB", detail=curve[-1]))


async def recording_rate(engine: Engine, sessions: int, config: RunConfig, questions: Sequence[Question]) -> float:
    """Thinking tokens per second while each of these sessions records the same number of traces with their probes."""
    made: list[int] = []
    began = time.perf_counter()

    async def make(key: Key) -> None:
        await generate_trace(engine, config, questions[key[1]], key[1], made.append)

    await in_tasks([("", number) for number in range(sessions * TRACES_EACH)], make, sessions)
    return sum(made) / (time.perf_counter() - began)


async def measure_default(tokens: int, rounds: int) -> dict[str, Any]:
    """One session alone, and as many as `cgr generate` opens by default, in each round. The best of each counts: other load
    on the machine only makes them slower."""
    sessions = sessions_of(None)
    problems = itertools.islice(unseen(1, families=("map", "product"), levels=(6,)), sessions * TRACES_EACH)
    questions = tuple(Question(str(number), problem.text, None) for number, problem in enumerate(problems))
    plan = Plan(questions, 1, Settings(budget=tokens), probe=True)
    alone, together = open_model(budget=tokens), open_model(sessions=sessions, budget=tokens)
    async with alone, together:
        config = plan.config(alone.engine.info, alone.engine.capabilities)
        found: list[tuple[float, float]] = []
        for _ in range(rounds):
            one = await recording_rate(alone.engine, 1, config, questions)
            found.append((one, await recording_rate(together.engine, sessions, config, questions)))
    best, best_together = (max(rates) for rates in zip(*found, strict=True))
    return {
        "cores": cores(),
        "sessions": sessions,
        "alone": best,
        "together": best_together,
        "ratio": best_together / (cores() * best),
        "rounds": found,
        "megabytes": memory.peak(),
    }


def default_setting(results: Results) -> None:
    """Thinking with probes on the embedded model at the default number of sessions, over one session times the cores."""
    found = asyncio.run(measure_default(*((128, 1) if results.quick else (640, 9))))
    what = f"tokens a second with probes, by default, over {found['cores']} x one session ({found['alone']:.0f} a second)"
    row = Row(what, "embedded, llama.cpp", found["ratio"], sense="at least", hold=0.85, detail=found)
    results.rows.append(row)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", default="embedded", help="the embedded model: embedded, hf:FOLDER or vllm:FOLDER")
    parser.add_argument("--sessions", type=int, nargs="+", default=[8])
    parser.add_argument("--tokens", type=int, default=TOKENS)
    parser.add_argument("--rounds", type=int, help=f"default, by the number of sessions: {ROUNDS}")
    options = parser.parse_args()
    click.echo(json.dumps(asyncio.run(measure_all(options.engine, options.sessions, options.tokens, options.rounds))))


if __name__ == "__main__":
    main()
