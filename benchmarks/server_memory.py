"""The memory of `cgr serve` over many requests, each with a question of its own: as a gateway, and on the embedded model.

`python -m benchmarks.server_memory --requests 10000` for a look by itself; `make bench` has the rows.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import click
import uvloop

from benchmarks.gateway import Process, process
from benchmarks.load import stream
from benchmarks.rows import Results, Row, line

REQUESTS, QUICK_REQUESTS = 10_000, 400
SAMPLES = 10  # the first tenth of the requests may fill caches and pools, and is sent with more requests at once for that
FIRST = 2  # times as many at once
AT_ONCE = {"gateway": 32, "embedded": 8}
GROWTH = 1.02  # the memory at the end over that after the first tenth; a leak of 1 KB a request would be 1.07


@contextmanager
def server(kind: str) -> Iterator[Process]:
    """A server of this kind, with little to do for each request."""
    with ExitStack() as stack:
        options: tuple[str, ...] = ("--port", "0", "--queue", "1024")
        if kind == "gateway":
            shape = ("--thinking", "100", "--answer", "8", "--rate", "0")
            upstream = stack.enter_context(process("benchmarks.fast_upstream", *shape))
            options += ("--base-url", f"{upstream.address}/v1")
        yield stack.enter_context(process("cgr.cli", "serve", *options))


def body(number: int) -> dict[str, Any]:
    """A request with a question of its own: every prefix that a cache could keep is new."""
    question = f"Start with x={number}. Apply x=(8x+97) mod 1000, 2 times. Find \\boxed{{x}}."
    asked = {"interval": 16, "budget": 48, "max_answer_tokens": 4}
    messages = [{"role": "user", "content": question}]
    return {"messages": messages, "max_tokens": 64, "seed": number, "stream": True, "cgr": asked}


async def requests(address: str, numbers: range, at_once: int) -> None:
    """All of these requests, so many at once."""
    waiting = iter(numbers)

    async def work() -> None:
        for number in waiting:
            await stream(address, "/v1/chat/completions", body(number))

    await asyncio.gather(*itertools.starmap(work, [()] * at_once))


def samples(kind: str, count: int) -> list[float]:
    """The memory in MB after each tenth of the requests."""
    found, part = [], count // SAMPLES
    with server(kind) as one:
        for number in range(SAMPLES):
            at_once = AT_ONCE[kind] * (1 if number else FIRST)
            uvloop.run(requests(one.address, range(number * part, (number + 1) * part), at_once))
            found.append(one.memory())
    return found


def memory(results: Results, count: int | None = None, kinds: Sequence[str] = tuple(AT_ONCE)) -> None:
    """No growth after the first tenth of the requests."""
    wanted = count or (QUICK_REQUESTS if results.quick else REQUESTS)
    for kind in kinds:
        found = samples(kind, wanted)
        what = f"memory after {wanted:,} requests, over that after the first {wanted // SAMPLES:,}"
        hold = GROWTH if wanted >= REQUESTS else None
        results.rows.append(Row(what, f"cgr serve, {kind}", found[-1] / found[0], hold=hold, detail={"MB": found}))
        results.rows.append(Row(f"memory after {wanted:,} requests", f"cgr serve, {kind}", found[-1], "MB"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=QUICK_REQUESTS, help="of each kind of server")
    parser.add_argument("--kind", action="append", choices=AT_ONCE, help="only this kind of server")
    options = parser.parse_args()
    results = Results(quick=True)
    memory(results, options.requests, options.kind or tuple(AT_ONCE))
    for row in results.rows:
        click.echo(f"{line(row)} {row.detail}")


if __name__ == "__main__":
    main()
