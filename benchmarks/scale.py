"""Many machines, simulated: `python -m benchmarks.scale [--figure FILE] [--json]`. The arithmetic is in docs/scale.md.

Two discrete-event simulations. *Experiment*: the traces of the paper on 8 engines, divided in advance (`--shard`) or
handed out one by one (`--ray`). *Service*: requests on a slice of a fleet of servers; the probes of a request go to the
server that has its thinking in its cache, or to any server.

A server computes one token for each of its n sequences in a step of `step + per_sequence * n` seconds, and reads prompts
one after the other at `prefill` tokens a second; meanwhile its sequences wait. What a probe reads, and what a gateway
computes for a token and a probe, was measured here; the speed of a GPU is an input, not a measurement: set it to that of
your model.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import fmean, quantiles
from typing import Any

import click

from benchmarks.simulation import Clock, Server, Speed
from cgr.lab.output import Head, Table, style
from cgr.lab.store.shard import Shard

RESULTS = Path(__file__).parent / "results" / "bench.json"
# seconds of a gateway's processor for a token and for a probe: python -m benchmarks.gateway --quick --streams 64
# --way read --way probed gave 22.7 and 49.6 microseconds a token; 32 probes in 546 tokens are the difference
TOKEN_CPU, PROBE_CPU = 22.7e-6, (49.6 - 22.7) * 1e-6 * 546 / 32
STREAMS = 256  # of one gateway process
SUFFIX, ANSWER, BLOCK = 7, 4, 16  # tokens of a probe's suffix and answer; tokens of a cache block on GPUs
QUESTIONS, SEEDS, BUDGET, INTERVAL, ENGINES = 30, 64, 32_000, 1000, 8  # the paper's experiment
LOADS = (0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 0.95)


def lengths(seed: int) -> dict[tuple[str, int], int]:
    """The length of each trace of the experiment: each question has a typical one, and its seeds scatter around it."""
    chance = random.Random(seed)
    typical = {f"q{number}": chance.lognormvariate(9.3, 0.6) for number in range(QUESTIONS)}
    return {
        (name, number): max(min(round(mean * chance.lognormvariate(0, 0.35)), BUDGET), 200)
        for name, mean in typical.items()
        for number in range(SEEDS)
    }


def makespan(traces: dict[tuple[str, int], int], speed: Speed, *, shards: bool, engines: int = ENGINES) -> float:
    """Seconds until the last trace is done: in shards that are fixed in advance, or handed out as places become free."""
    clock = Clock()
    servers = [Server(clock, speed) for _ in range(engines)]
    common = iter(list(traces.items()))
    own = [iter([item for item in traces.items() if Shard(engines, n + 1).holds(*item[0])]) for n in range(engines)]
    ends = [0.0]

    def work(server: Server, queue: Iterator[tuple[tuple[str, int], int]]) -> None:
        for _, tokens in itertools.islice(queue, 1):
            server.decode(tokens, lambda: done(server, queue))

    def done(server: Server, queue: Iterator[tuple[tuple[str, int], int]]) -> None:
        ends[0] = clock.now
        work(server, queue)

    for _ in range(speed.sequences):  # one for each server, then the next: the one with the least work is next
        for server, queue in zip(servers, own, strict=True):
            work(server, queue if shards else common)
    clock.run()
    return ends[0]


@dataclass(frozen=True)
class ProbingCost:
    """What the probes of one trace cost: tokens read and decoded, and seconds on one server that does nothing else."""

    way: str
    read: float
    decoded: int
    seconds: float

    @property
    def over_thinking(self) -> float:
        """Tokens read for each token of the trace."""
        return self.read / BUDGET


def probing(
    tokens: int = BUDGET, interval: int = INTERVAL, speed: Speed | None = None, block: int = BLOCK
) -> list[ProbingCost]:
    """The ways to probe a trace of so many tokens at every interval."""
    cuts, speed = [*range(interval, tokens + 1, interval)], speed or Speed()
    again = block / 2 + SUFFIX  # a cache has whole blocks: on average half of one is read again
    ways = {
        "while it is generated": len(cuts) * again,
        "later, with a prefix cache": tokens + len(cuts) * again,
        "later, packed in one pass": tokens + len(cuts) * (SUFFIX + ANSWER),
        "later, each cut read again": sum(cuts) + len(cuts) * SUFFIX,
    }
    decoded = ANSWER * len(cuts)
    full = speed.decoding(speed.sequences)
    return [ProbingCost(way, read, decoded, read / speed.prefill + decoded / full) for way, read in ways.items()]


@dataclass(frozen=True)
class Service:
    """Requests on a slice of a fleet. `load`: of what the servers can think, were there no probes."""

    servers: int = 8
    load: float = 0.5
    sticky: bool = True
    prompt: int = 300
    thinking: float = 2000.0
    interval: int = 500
    answer: int = 200
    seconds: float = 600.0
    speed: Speed = field(default_factory=Speed)

    @property
    def rate(self) -> float:
        """Requests a second on all servers."""
        capacity = self.servers * self.speed.decoding(self.speed.sequences)
        return self.load * capacity / (self.thinking + self.interval / 2 + self.answer)


@dataclass(frozen=True)
class Fleet:
    """What so many requests a second need, at this load of the servers: tokens a second, servers, streams at once, and
    processes and cores of the gateway."""

    requests: float
    tokens: float
    servers: float
    streams: float
    processes: float
    cores: float


def fleet(requests: float, service: Service, seconds: float) -> Fleet:
    """The arithmetic of a service whose requests take so many seconds."""
    tokens = service.thinking + service.interval / 2 + service.answer
    probes = service.thinking / service.interval + 0.5
    each = service.speed.decoding(service.speed.sequences) * service.load
    cores = requests * (tokens * TOKEN_CPU + probes * PROBE_CPU)
    streams = requests * seconds
    return Fleet(requests, requests * tokens, requests * tokens / each, streams, max(streams / STREAMS, cores), cores)


@dataclass(frozen=True)
class Served:
    """What was seen: requests done, mean seconds of a request, median and 95th percentile of a probe, the share of probes
    that missed the cache, and the share of the time that servers read prompts."""

    load: float
    sticky: bool
    requests: int
    seconds: float
    probe_median: float
    probe_95: float
    missed: float
    reading: float


def serve(service: Service, seed: int = 0) -> Served:
    """Simulate the service. The first quarter of the time is not counted."""
    clock, chance = Clock(), random.Random(seed)
    servers = [Server(clock, service.speed) for _ in range(service.servers)]
    whole: list[tuple[float, float]] = []
    probes: list[tuple[float, float]] = []
    missed = [0]

    def arrive() -> None:
        if clock.now > service.seconds:
            return
        clock.after(chance.expovariate(service.rate), arrive)
        _Request(service, servers, clock, chance, whole, probes, missed)

    clock.after(0.0, arrive)
    clock.run(until=service.seconds)
    share = sum(server.reading for server in servers) / service.servers / service.seconds
    clock.run()  # those that have begun are served to their end
    counted = [took for began, took in whole if began > service.seconds / 4]
    times = [took for began, took in probes if began > service.seconds / 4]
    cut = quantiles(times, n=20)
    return Served(
        service.load, service.sticky, len(counted), fmean(counted), cut[9], cut[18], missed[0] / max(len(probes), 1), share
    )


class _Request:
    """One request: its prompt, stretches of thinking with a probe after each, and the answer."""

    def __init__(
        self,
        service: Service,
        servers: list[Server],
        clock: Clock,
        chance: random.Random,
        whole: list[tuple[float, float]],
        probes: list[tuple[float, float]],
        missed: list[int],
    ) -> None:
        self.service, self.servers, self.clock, self.chance = service, servers, clock, chance
        self.whole, self.probes, self.missed = whole, probes, missed
        self.began, self.at, self.needed = clock.now, 0, chance.expovariate(1 / service.thinking)
        self.home = chance.randrange(len(servers))
        self.cached = {self.home: service.prompt}  # tokens of this request in the cache of each server
        servers[self.home].read(service.prompt, self._think)

    def _think(self) -> None:
        self.servers[self.home].decode(self.service.interval, self._probe)

    def _probe(self) -> None:
        self.at += self.service.interval
        self.cached[self.home] = self.service.prompt + self.at
        place = self.home if self.service.sticky else self.chance.randrange(len(self.servers))
        unknown = self.service.prompt + self.at - self.cached.get(place, 0)
        self.missed[0] += unknown > 0
        self.cached[place] = self.service.prompt + self.at
        server, asked = self.servers[place], self.clock.now
        read = unknown + BLOCK / 2 + SUFFIX
        server.read(read, lambda: server.decode(ANSWER, lambda: self._answered(asked), waits=False))

    def _answered(self, asked: float) -> None:
        self.probes.append((asked, self.clock.now - asked))
        if self.at < self.needed:
            self._think()
        else:
            self.servers[self.home].decode(self.service.answer, self._done)

    def _done(self) -> None:
        self.whole.append((self.began, self.clock.now - self.began))


@dataclass(frozen=True)
class Check:
    """A figure of bench.json beside what the arithmetic predicts from two others of it: seconds."""

    what: str
    predicted: float
    measured: float


def checks(path: Path = RESULTS) -> list[Check]:
    """Probing at 32 cuts with a prefix cache, and reading each cut again, predicted from one prefill and one probe."""
    found = json.loads(path.read_text(encoding="utf-8"))
    engine, curves = "embedded, vLLM", found["curves"]
    detail = next(
        row["detail"] for row in found["rows"] if row["engine"] == engine and row["what"].startswith("probing 1,648")
    )
    again = next(row for row in found["rows"] if row["engine"] == engine and row["what"].startswith("reading it again"))
    probe = fmean(point["seconds"] for point in curves[f"{engine}, a probe"])
    cuts = [1648 * number / 32 for number in range(1, 33)]
    per_token = detail["prefill"] / 1648
    request = probe - (SUFFIX + BLOCK / 2) * per_token  # of a probe that reads almost nothing
    return [
        Check("probing 1,648 tokens at 32 cuts, with a prefix cache", detail["prefill"] + 32 * probe, detail["probing"]),
        Check(
            "the same, each cut read again",
            sum(request + cut * per_token for cut in cuts),
            again["value"] * detail["probing"],
        ),
    ]


def draw(served: list[Served], traces: dict[tuple[str, int], int], speed: Speed) -> Any:
    """The time of the experiment, the cost of probes, and the service."""
    figure, (left, middle, right) = style.paper(columns=3, size=(14.5, 4.2))
    counts = (2, 4, 8, 16, 32)
    ideal = sum(traces.values()) / speed.decoding(speed.sequences)
    for shards, name, colour in ((True, "in shards", style.LINES[0]), (False, "handed out", style.LINES[1])):
        hours = [makespan(traces, speed, shards=shards, engines=count) / 3600 for count in counts]
        left.plot(counts, hours, "o-", color=colour, label=name)
    left.plot(
        counts, [ideal / count / 3600 for count in counts], "--", color=style.BASELINE, label="all places always full"
    )
    left.set(xscale="log", yscale="log", xlabel="Engines", ylabel="Hours")
    _ticks(left.xaxis, counts)
    _ticks(left.yaxis, (0.1, 0.2, 0.5, 1, 2))
    left.legend()
    style.title(left, "1,920 traces")
    costs = probing(speed=speed)
    middle.barh(
        [cost.way.replace(", ", ",\n") for cost in costs], [cost.over_thinking for cost in costs], color=style.LINES[0]
    )
    for number, cost in enumerate(costs):
        middle.text(cost.over_thinking, number, f" {cost.over_thinking:.2f}", va="center")
    middle.invert_yaxis()
    middle.set(xlabel="Tokens read for each thinking token", xlim=(0, 20))
    style.title(middle, "32 probes in 32,000 tokens")
    for sticky, name, colour in (
        (True, "to the server with the thinking", style.LINES[1]),
        (False, "to any server", style.LINES[0]),
    ):
        points = [one for one in served if one.sticky == sticky]
        right.plot([one.load for one in points], [one.probe_95 for one in points], "o-", color=colour, label=name)
    right.set(
        yscale="log",
        xlabel="Load, of what the servers can think",
        ylabel="Slowest 5% of probes, in seconds",
        ylim=(0.05, 20),
    )
    _ticks(right.yaxis, (0.1, 0.3, 1, 3, 10))
    right.legend(title="Probes go", loc="upper left")
    style.title(right, "A service on 8 servers")
    return figure


def tables(served: list[Served], traces: dict[tuple[str, int], int], speed: Speed) -> list[str]:
    """All figures as text."""
    ideal = sum(traces.values()) / ENGINES / speed.decoding(speed.sequences)
    hours = [makespan(traces, speed, shards=shards) / 3600 for shards in (True, False)]
    cost_heads = (
        Head("way", "Probes of a whole trace"),
        Head("read", "Read", ",.0f"),
        Head("decoded", "Decoded", ",d"),
        Head("seconds", "Seconds", ".1f"),
    )
    served_heads = (
        Head("load", "Load", ".2f"),
        Head("sticky", "Sticky"),
        Head("requests", "Requests", ",d"),
        Head("seconds", "Seconds", ".1f"),
        Head("probe_median", "Probe, median", ".2f"),
        Head("probe_95", "95%", ".2f"),
        Head("missed", "Missed", ".1f", 100, "%"),
        Head("reading", "Reading", ".1f", 100, "%"),
    )
    check_heads = (
        Head("what", "Checked against bench.json"),
        Head("predicted", "Predicted", ".3f"),
        Head("measured", "Measured", ".3f"),
    )
    rows = tuple(
        (
            one.load,
            "yes" if one.sticky else "no",
            one.requests,
            one.seconds,
            one.probe_median,
            one.probe_95,
            one.missed,
            one.reading,
        )
        for one in served
    )
    return [
        f"{len(traces):,} traces, {sum(traces.values()):,} tokens on {ENGINES} engines: {hours[0]:.2f} h in shards, "
        f"{hours[1]:.2f} h handed out, {ideal / 3600:.2f} h with all places always full.",
        *Table.of_records("", "", cost_heads, probing(speed=speed)).lines(),
        *Table("", "", served_heads, rows).lines(),
        *Table.of_records("", "", check_heads, checks()).lines(),
        *_fleet_lines(served, speed),
    ]


def _ticks(axis: Any, values: Sequence[float]) -> None:
    axis.set_ticks(values, [f"{value:g}" for value in values])
    axis.set_ticks([], minor=True)


def _fleet_lines(served: list[Served], speed: Speed) -> list[str]:
    usual = next(one for one in served if one.sticky and one.load == 0.8)
    found = fleet(1000, Service(load=0.8, speed=speed), usual.seconds)
    return [
        f"1,000 requests a second at load 0.8: {found.tokens:,.0f} tokens a second, {found.servers:,.0f} servers, "
        f"{found.streams:,.0f} streams at once, {found.processes:,.0f} gateway processes on {found.cores:,.0f} cores.",
    ]


def main() -> None:
    """Print the tables, or JSON; draw the figure with --figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    usual = Speed()
    parser.add_argument("--step", type=float, default=usual.step, help="seconds of a decoding step")
    parser.add_argument(
        "--per-sequence", type=float, default=usual.per_sequence, help="more seconds for each sequence in it"
    )
    parser.add_argument("--prefill", type=float, default=usual.prefill, help="tokens of a prompt a second")
    parser.add_argument("--sequences", type=int, default=usual.sequences, help="sequences that a server computes at once")
    parser.add_argument("--seconds", type=float, default=600.0, help="simulated time of the service")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--figure", type=Path, help="write the figure here, as PNG")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    speed = Speed(given.step, given.per_sequence, given.prefill, given.sequences)
    traces = lengths(given.seed)
    served = [
        serve(Service(load=load, sticky=sticky, seconds=given.seconds, speed=speed), given.seed)
        for sticky in (True, False)
        for load in LOADS
    ]
    if given.json:
        click.echo(json.dumps({"speed": asdict(speed), "served": [asdict(one) for one in served]}))
    else:
        click.echo("\n".join(tables(served, traces, speed)))
    if given.figure:
        with style.styled():
            draw(served, traces, speed).savefig(given.figure, dpi=110, bbox_inches="tight")


if __name__ == "__main__":
    main()
