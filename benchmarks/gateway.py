"""`cgr serve` under load: 256 streams at once through one worker, beside the upstream alone and beside a bare pass-through.

`python -m benchmarks.gateway --quick` for a look by itself; `make bench` has the rows. All ways are measured in turn, in
one run: the upstream alone, a pass-through that looks at nothing (pass_through.py), a request that cgr passes on, one that
cgr reads without probes on the way, and one with 32 probes that never stop.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import click
import uvloop

from benchmarks.load import Load, load
from benchmarks.rows import Results, Row, line

STREAMS, QUICK_STREAMS = 256, 64
THINKING, QUICK_THINKING = 2048, 512
ANSWER, PROBES, RATE = 32, 32, 50.0
ROUNDS, QUICK_ROUNDS = 2, 1
MESSAGES = [{"role": "user", "content": "Find x, the last three digits of 317*29, and write it as \\boxed{x}."}]
ENGINE = "cgr serve, fast upstream"
WAYS = ("alone", "bare", "passed on", "read", "probed")


@dataclass(frozen=True, slots=True)
class Measured:
    """One load on one way. `cpu`: seconds of the process in between, if there is one."""

    load: Load
    cpu: float

    def microseconds(self, tokens: int) -> float:
        """Processor time for a token."""
        return self.cpu * 1e6 / (tokens * len(self.load.streams))


@dataclass(slots=True)
class Setting:
    """The processes, and what a request is."""

    upstream: str
    bare: Process
    gateway: Process
    thinking: int
    streams: int
    rate: float
    found: dict[str, list[Measured]] = field(default_factory=lambda: {way: [] for way in WAYS})

    @property
    def tokens(self) -> int:
        """Of one stream."""
        return self.thinking + ANSWER

    async def measure(self, way: str) -> Measured:
        """One load."""
        completion = {"prompt": "<think>", "max_tokens": self.tokens + 2, "temperature": 1.0, "stream": True}
        chat = {"messages": MESSAGES, "max_tokens": 2 * self.tokens + 2048, "stream": True, "temperature": 1.0}
        process = {"alone": None, "bare": self.bare}.get(way, self.gateway)
        address = self.upstream if process is None else process.address
        asked: dict[str, dict[str, Any]] = {
            "passed on": completion | {"cgr": False},
            "read": chat | {"cgr": {"rule": "fixed-budget", "budget": 2 * self.thinking}},
            "probed": chat | {"cgr": {"interval": self.thinking // PROBES, "budget": 2 * self.thinking}},
        }
        path = "/v1/chat/completions" if way in ("read", "probed") else "/v1/completions"
        before = process.cpu() if process else 0.0
        found = await load(address, path, asked.get(way, completion), self.streams)
        return Measured(found, process.cpu() - before if process else 0.0)

    async def round(self, ways: tuple[str, ...] = WAYS) -> None:
        """Each way once."""
        for way in ways:
            self.found[way].append(await self.measure(way))

    def ratio(self, way: str) -> float:
        """Time to the last token over that of the upstream alone: the best of the rounds of each."""
        return min(one.load.last for one in self.found[way]) / min(one.load.last for one in self.found["alone"])

    def cpu(self, way: str) -> float:
        """Microseconds of processor time for a token: the best of the rounds."""
        return min(one.microseconds(self.tokens) for one in self.found[way])

    def first(self, way: str) -> float:
        """Milliseconds to the first token, over those of the upstream alone."""
        return 1000 * (min(one.load.first for one in self.found[way]) - min(one.load.first for one in self.found["alone"]))


@dataclass(frozen=True, slots=True)
class Process:
    """A server in a process of its own."""

    popen: subprocess.Popen[str]
    address: str

    def cpu(self) -> float:
        """Seconds of processor time so far, of all its threads. They are counted here; in `stat` they are sampled."""
        tasks = Path(f"/proc/{self.popen.pid}/task").glob("*/schedstat")
        return sum(int(one.read_text(encoding="utf-8").split()[0]) for one in tasks) / 1e9

    def memory(self) -> float:
        """Its memory in MB."""
        text = Path(f"/proc/{self.popen.pid}/status").read_text(encoding="utf-8")
        found = re.search(r"^VmRSS:\s+(\d+) kB", text, re.MULTILINE)
        return int(found[1]) / 1024 if found else 0.0


@contextmanager
def process(*words: str, env: Mapping[str, str] | None = None) -> Iterator[Process]:
    """A Python module as a process; the first line that it prints has its address or its port."""
    call = [sys.executable, "-m", *words]
    popen = subprocess.Popen(
        call, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=os.environ | (env or {})
    )
    try:
        assert popen.stdout is not None
        said = popen.stdout.readline()
        found = re.search(r"(http://[^/\s]+:)?(\d+)(?=/v1|\s*$)", said)
        if not found:
            raise RuntimeError(f"{words[0]} did not start: {said!r}")
        yield Process(popen, f"{found[1] or 'http://127.0.0.1:'}{found[2]}")
    finally:
        popen.terminate()
        popen.communicate(timeout=60)  # also closes the pipe


@contextmanager
def setting(rate: float, *, quick: bool, streams: int | None = None) -> Iterator[Setting]:
    """The upstream, the pass-through and the gateway, running."""
    thinking = QUICK_THINKING if quick else THINKING
    with ExitStack() as stack:
        shape = ("--thinking", str(thinking), "--answer", str(ANSWER), "--rate", str(rate))
        upstream = stack.enter_context(process("benchmarks.fast_upstream", *shape))
        bare = stack.enter_context(process("benchmarks.pass_through", upstream.address))
        options = ("--base-url", f"{upstream.address}/v1", "--port", "0", "--sessions", "256", "--queue", "1024")
        gateway = stack.enter_context(process("cgr.cli", "serve", *options))
        count = streams or (QUICK_STREAMS if quick else STREAMS)
        yield Setting(upstream.address, bare, gateway, thinking, count, rate)


def paced(results: Results) -> None:
    """Streams of 50 tokens a second: what a user sees."""
    with setting(RATE, quick=results.quick) as found:
        for _ in range(QUICK_ROUNDS if results.quick else ROUNDS):
            uvloop.run(found.round())
    results.rows += paced_rows(found)


def paced_rows(found: Setting) -> Iterator[Row]:
    """Time to the last token, time to the first, processor time."""
    shape = f"{found.streams} streams, {found.rate:g} tokens a second each"
    detail = {"load": os.getloadavg(), "bare": found.ratio("bare")}
    for way, hold in (("passed on", 1.03), ("read", 1.03), ("probed", 1.05)):
        what = f"time to the last token, {shape}, {NAMES[way]}, over the upstream alone"
        yield Row(what, ENGINE, found.ratio(way), hold=hold, detail=detail)
    for way in ("passed on", "read", "probed"):
        what = f"first token later than from the upstream alone, {shape}, {NAMES[way]}"
        yield Row(what, ENGINE, found.first(way), "ms", detail={"bare": found.first("bare")})
    yield from cpu_rows(found, shape, "probed")


NAMES = {
    "bare": "a bare pass-through",
    "passed on": "passed on",
    "read": "read, without probes",
    "probed": f"{PROBES} probes that never stop",
}


def cpu_rows(found: Setting, shape: str, *more: str) -> Iterator[Row]:
    """Processor time for a token, beside that of the pass-through."""
    bare = found.cpu("bare")
    for way in ("passed on", "read", *more):
        detail = {"microseconds": found.cpu(way), "bare": bare}
        what = f"processor time for a token, {shape}, {NAMES[way]}, over a bare pass-through"
        yield Row(what, ENGINE, found.cpu(way) / bare, hold=None if way in more else 2, detail=detail)
        yield Row(f"processor time for a token, {shape}, {NAMES[way]}", ENGINE, found.cpu(way), "µs")
    yield Row(f"processor time for a token, {shape}, {NAMES['bare']}", ENGINE, bare, "µs")


def unpaced(results: Results) -> None:
    """Streams as fast as they are read: what the code costs."""
    with setting(0, quick=results.quick) as found:
        for _ in range(QUICK_ROUNDS if results.quick else ROUNDS):
            uvloop.run(found.round(("alone", "bare", "passed on", "read")))
    shape = f"{found.streams} streams without pause"
    detail = {"load": os.getloadavg(), "bare": found.ratio("bare")}
    for way in ("passed on", "read"):
        what = f"time to the last token, {shape}, {NAMES[way]}, over a bare pass-through"
        results.rows.append(Row(what, ENGINE, found.ratio(way) / found.ratio("bare"), detail=detail))
    results.rows += cpu_rows(found, shape)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer and shorter streams, one round")
    parser.add_argument("--way", action="append", default=[], choices=WAYS, help="measure only these, and print them")
    parser.add_argument("--rate", type=float, default=RATE, help="with --way: tokens a second of a stream; 0: no pause")
    parser.add_argument("--streams", type=int, help="with --way: streams at once")
    options = parser.parse_args()
    if options.way:
        with setting(options.rate, quick=options.quick, streams=options.streams) as found:
            for way in options.way:
                one = uvloop.run(found.measure(way))
                lasts = sorted(each.last for each in one.load.streams)
                text = (
                    f"{way}: first {1000 * one.load.first:.1f} ms, last {one.load.last:.3f} s (median {median(lasts):.3f}, "
                )
                click.echo(
                    f"{text}most {lasts[-1]:.3f}), {one.microseconds(found.tokens):.1f} µs a token, {one.load.events}"
                )
        return
    results = Results(options.quick)
    for work in (paced, unpaced):
        work(results)
    for row in results.rows:
        click.echo(line(row))


if __name__ == "__main__":
    main()
