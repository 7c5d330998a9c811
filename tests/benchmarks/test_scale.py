"""The simulation of many machines: it agrees with arithmetic where that is exact, and repeats."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.scale import Service, checks, fleet, lengths, makespan, probing, serve
from benchmarks.simulation import Clock, Server, Speed

SPEED = Speed(step=0.02, per_sequence=0.001, prefill=1000.0, sequences=4)
SMALL = Service(servers=4, load=0.5, thinking=200.0, interval=100, answer=20, prompt=50, seconds=300.0, speed=SPEED)


def test_sequences_share_the_steps() -> None:
    clock, ends = Clock(), []
    server = Server(clock, SPEED)
    server.decode(100, lambda: ends.append(clock.now))
    server.decode(50, lambda: ends.append(clock.now))
    clock.run()
    assert ends == pytest.approx([50 * 0.022, 50 * 0.022 + 50 * 0.021])


def test_sequences_wait_while_a_prompt_is_read_and_for_a_place() -> None:
    clock, ends = Clock(), []
    server = Server(clock, replace(SPEED, sequences=1))
    server.decode(100, lambda: ends.append(("first", clock.now)))
    server.decode(100, lambda: ends.append(("second", clock.now)))
    clock.after(1.0, lambda: server.read(500, lambda: ends.append(("read", clock.now))))
    clock.run()
    assert [name for name, _ in ends] == ["read", "first", "second"]
    assert [at for _, at in ends] == pytest.approx([1.5, 100 * 0.021 + 0.5, 200 * 0.021 + 0.5])
    assert server.reading == 0.5


def test_the_experiment_is_between_its_bounds() -> None:
    traces = dict(list(lengths(1).items())[:120])
    full = sum(traces.values()) / 2 / SPEED.decoding(4)
    handed_out, shards = (makespan(traces, SPEED, shards=way, engines=2) for way in (False, True))
    assert full <= handed_out
    assert full <= shards
    assert handed_out <= full + max(traces.values()) * 0.024  # the last trace began when a place was still free


def test_one_engine_is_the_same_either_way() -> None:
    traces = dict(list(lengths(2).items())[:40])
    assert makespan(traces, SPEED, shards=True, engines=1) == makespan(traces, SPEED, shards=False, engines=1)


def test_what_probes_read() -> None:
    costs = {cost.way: cost.read for cost in probing(32_000, 1000)}
    assert costs["later, each cut read again"] == sum(range(1000, 32_001, 1000)) + 32 * 7
    assert costs["while it is generated"] == 32 * 15
    assert costs["later, with a prefix cache"] == 32_000 + 32 * 15
    assert costs["later, packed in one pass"] == 32_000 + 32 * 11


def test_probes_that_miss_the_cache_cost_the_servers_time() -> None:
    near, anywhere = serve(SMALL, 3), serve(replace(SMALL, sticky=False), 3)
    assert near.missed == 0
    assert 0.5 < anywhere.missed <= 0.75 + 0.05
    assert anywhere.reading > 2 * near.reading
    assert anywhere.probe_95 > near.probe_95
    assert serve(SMALL, 3) == near
    assert serve(SMALL, 4) != near


def test_as_many_requests_are_served_as_come() -> None:
    served = serve(SMALL, 5)
    assert served.requests == pytest.approx(SMALL.rate * SMALL.seconds * 3 / 4, rel=0.2)


def test_the_size_of_a_fleet() -> None:
    found = fleet(10, replace(SMALL, load=0.5), seconds=4.0)
    assert found.tokens == 10 * 270
    assert found.servers == pytest.approx(2700 / (0.5 * 4 / 0.024))
    assert found.streams == 40


def test_the_arithmetic_agrees_with_what_was_measured() -> None:
    for check in checks():
        assert check.predicted == pytest.approx(check.measured, rel=0.1), check.what


def test_the_command(tmp_path: Path) -> None:
    call = [sys.executable, "-m", "benchmarks.scale", "--seconds", "20", "--figure", str(tmp_path / "scale.png")]
    done = subprocess.run(call, capture_output=True, text=True, check=True)
    assert "1,920 traces" in done.stdout
    assert (tmp_path / "scale.png").stat().st_size > 10_000
