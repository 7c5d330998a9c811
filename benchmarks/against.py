"""Tokens a second of this checkout beside those of another one, in turns on the same machine.

    git worktree add /tmp/before COMMIT
    python -m benchmarks.against /tmp/before

Each turn starts a fresh process for each checkout, which thinks with the embedded model in 1, 8 and 32 sessions. The
ratio is the median over the turns, so that a noisy moment does not decide.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

import click

SESSIONS = (1, 8, 32)
TOKENS = 512
QUESTION = "Start with x=864. Apply x=(8x+97) mod 1000, 5 times. Find x."


async def tokens_per_second(model: Any, sessions: int, tokens: int) -> float:
    """The speed of this many sessions that think at the same time, with the end of thinking banned."""
    from cgr.engines.base import Sampling

    opened = [await model.engine.open(QUESTION, Sampling(seed=seed), room=tokens + 8) for seed in range(sessions)]
    began = time.perf_counter()
    stretches = await asyncio.gather(*(session.think(tokens, ban_end=True) for session in opened))
    seconds = time.perf_counter() - began
    for session in opened:
        await session.close()
    await model.aclose()
    return sum(len(stretch.ids) for stretch in stretches) / seconds


def measure(tokens: int) -> dict[int, float]:
    """Tokens a second of the package that is on the path, for each number of sessions; the first thinking warms up."""
    import cgr

    found = {}
    for sessions in SESSIONS:
        model = cgr.open_model(sessions=sessions, context=tokens + 256)
        asyncio.run(tokens_per_second(model, sessions, 64))
        found[sessions] = asyncio.run(tokens_per_second(model, sessions, tokens))
    return found


def measured_in(checkout: Path, tokens: int) -> dict[int, float]:
    """The same in a process of its own, with the package of this checkout."""
    call = [sys.executable, str(Path(__file__).resolve()), "--measure", "--tokens", str(tokens)]
    environment = {**os.environ, "PYTHONPATH": str(checkout / "src")}
    done = subprocess.run(call, capture_output=True, text=True, check=True, env=environment)
    return {int(sessions): float(speed) for sessions, speed in json.loads(done.stdout).items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("other", type=Path, nargs="?", help="the folder of the other checkout")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=TOKENS)
    parser.add_argument("--measure", action="store_true", help="print the speed of the package on the path, as JSON")
    options = parser.parse_args()
    if options.measure:
        click.echo(json.dumps(measure(options.tokens)))
        return
    if options.other is None or not (options.other / "src" / "cgr").is_dir():
        raise SystemExit("Give the folder of another checkout of cgr.")
    here = Path(__file__).resolve().parents[1]
    turns = [(measured_in(options.other, options.tokens), measured_in(here, options.tokens)) for _ in range(options.turns)]
    for sessions in SESSIONS:
        other, ours = (median(turn[side][sessions] for turn in turns) for side in (0, 1))
        ratio = median(new[sessions] / old[sessions] for old, new in turns)
        click.echo(f"{sessions:>3} sessions: {other:7.0f} tokens a second there, {ours:7.0f} here, ratio {ratio:.3f}")


if __name__ == "__main__":
    main()
