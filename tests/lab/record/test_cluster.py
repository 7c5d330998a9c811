"""Engines on a Ray cluster: the same rows as on one machine, also after an engine was killed."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from time import monotonic, sleep

import pytest

from cgr.engines.open import ModelOptions
from cgr.errors import EngineError, UsageError
from cgr.lab.questions import load_questions
from cgr.lab.record.cluster import LOST, ClusterEngine
from cgr.lab.record.generate import Plan, agenerate, generate
from cgr.lab.record.jobs import Progress, summarise
from cgr.lab.record.probe import aprobe
from cgr.lab.record.ray_cluster import Placement, _check_address, _engines, _gpus, _options
from cgr.lab.store import Store
from cgr.lab.store.config import ProbeRequest
from cgr.settings import Settings
from cgr.solve import Model
from tests.lab.store.test_shard import rows, same
from tests.support import command

needs_ray = pytest.mark.ray
GENERATE = ("generate", "--questions", "arithmetic", "--limit", "5", "--budget", "128", "--quiet", "--seeds", "2")
PLAN = Plan(load_questions("arithmetic", limit=5), seeds=4, settings=Settings(budget=128), source="arithmetic")


# Without Ray


def test_an_address_that_nobody_answers_at_is_refused_at_once() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    for address in (f"127.0.0.1:{port}", f"ray://127.0.0.1:{port}", "127.0.0.1", "127.0.0.1:x", "no such host:1", "://"):
        with pytest.raises(UsageError, match="There is no Ray cluster at"):
            _check_address(address)


def test_servers_and_their_key_go_to_the_engines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CGR_BASE_URL", "http://a http://b,http://c")
    monkeypatch.setenv("CGR_API_KEY", "secret")
    options = ModelOptions("some-name")
    assert [_options(options, number, 2).base_url for number in range(2)] == [("http://a", "http://c"), ("http://b",)]
    assert [_options(options, number, 4).base_url for number in range(4)] == [(f"http://{one}",) for one in "abca"]
    assert _options(options, 0, 2).api_key == "secret"
    assert _options(ModelOptions("embedded"), 3, 4).base_url == ()


@pytest.mark.parametrize(
    ("model", "placement", "resources", "gpus", "engines"),
    [
        ("hf:x", Placement(), {"GPU": 8.0, "CPU": 64.0}, 1, 8),
        ("hf:x", Placement(gpus=2), {"GPU": 8.0, "CPU": 64.0}, 2, 4),
        ("hf:x", Placement(gpus=0.5), {"GPU": 1.0, "CPU": 64.0}, 0.5, 2),
        ("hf:x", Placement(), {"CPU": 64.0}, 0, 3),
        ("embedded", Placement(), {"GPU": 8.0, "CPU": 64.0}, 0, 3),
    ],
)
def test_engines_by_what_the_cluster_has(
    model: str, placement: Placement, resources: dict[str, float], gpus: float, engines: int
) -> None:
    options = ModelOptions(model)
    assert _gpus(placement, options, resources) == gpus
    assert _engines(options, gpus, 3, resources) == engines


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--ray", "--engines", "0"), "cannot run 0 engines"),
        (("--ray", "--gpus-per-engine", "-1"), "cannot have -1 GPUs"),
        (("--engines", "2"), "--engines is for a cluster"),
        (("--gpus-per-engine", "1"), "--gpus-per-engine is for a cluster"),
    ],
)
def test_wrong_options_are_refused(tmp_path: Path, options: tuple[str, ...], said: str) -> None:
    done = command(*GENERATE, "--out", str(tmp_path / "run"), *options)
    assert (done.returncode, said in done.stderr) == (2, True), done.stderr


@pytest.mark.skipif(importlib.util.find_spec("ray") is not None, reason="Ray is installed")
def test_without_ray_the_extra_is_named(tmp_path: Path) -> None:
    done = command(*GENERATE, "--out", str(tmp_path / "run"), "--ray")
    assert done.returncode == 2
    assert "certainty-guided-reasoning[ray]" in done.stderr


# With Ray


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run that one machine makes, and its probes."""
    folder = tmp_path_factory.mktemp("here") / "run"
    with Model(ModelOptions("embedded", sessions=2, budget=128).engine()) as model:
        generate(folder, PLAN, model, sessions=2)
    assert command("probe", str(folder), "--quiet").returncode == 0
    return folder


@pytest.fixture
def _local(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    yield
    import ray

    ray.shutdown()


def cluster(engines: int = 2) -> ClusterEngine:
    return ClusterEngine(ModelOptions("embedded", sessions=2, budget=128), Placement("local", engines))


class Killer(Progress):
    """Kills one engine when this many traces are stored."""

    def __init__(self, engine: ClusterEngine, after: int) -> None:
        super().__init__(quiet=True)
        self.engine, self.after, self.killed = engine, after, 0

    def trace_done(self) -> None:
        super().trace_done()
        if self.new == self.after:
            self.killed = self.engine.running[0].process
            os.kill(self.killed, signal.SIGKILL)


@needs_ray
@pytest.mark.usefixtures("_local")
async def test_a_killed_engine_is_replaced_and_the_rows_are_the_same(here: Path, tmp_path: Path) -> None:
    run, engine = tmp_path / "run", cluster()
    await engine.connect()
    try:
        assert len({one.process for one in engine.running}) == 2
        assert engine.status() == "Ray: 2 of 2 engines on 1 machine, 0 traces in flight"
        killer = Killer(engine, after=3)
        await agenerate(run, PLAN, engine, sessions=4, progress=killer)
        assert killer.killed
        assert (killer.new, killer.failed, engine.replaced, killer.notes) == (20, 0, 1, [LOST])
        assert "1 engines replaced" in engine.status()
        async with asyncio.timeout(300):
            await asyncio.gather(*engine._starting)
        assert killer.killed not in {one.process for one in engine.running}
        probing = Killer(engine, after=2)
        await aprobe(run, ProbeRequest(), engine, sessions=4, progress=probing)
        assert (probing.new, probing.failed, engine.replaced) == (20, 0, 2)
        assert summarise(run, None, probing).failed == 0
    finally:
        await engine.close()
    assert same(rows(run), rows(here))


@needs_ray
@pytest.mark.usefixtures("_local")
async def test_an_engine_that_always_ends_is_given_up(tmp_path: Path) -> None:
    engine = cluster(1)
    await engine.connect()
    try:
        (place,) = engine._places
        os.kill(engine.running[0].process, signal.SIGKILL)
        bad = ModelOptions(str(tmp_path / "gone.gguf"))
        assert engine._cluster
        place.start = lambda: engine._cluster._start(bad)  # type: ignore[union-attr]
        with pytest.raises(EngineError, match="No engine of the cluster is left: There is no model"):
            await engine.encode("x")
    finally:
        await engine.close()


@needs_ray
def test_the_command_and_its_errors(here: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    done = command(*GENERATE, "--out", str(run), "--ray", "--engines", "2", env={"RAY_ADDRESS": ""})
    assert (done.returncode, done.stderr) == (0, "")
    with Store.open(run) as store, Store.open(here) as whole:
        assert {key: store.trace(key).ids for key in store.made()} == {key: whole.trace(key).ids for key in store.made()}
        assert len(store.made()) == 10
    done = command("probe", str(run), "--json", "--ray", "local", "--gpus-per-engine", "1", "--engines", "2")
    assert done.returncode == 2
    assert "2 engines need 2 GPUs, but the cluster has 0" in done.stderr
    done = command(*GENERATE, "--out", str(tmp_path / "x"), "--model", str(tmp_path / "gone.gguf"), "--ray")
    assert done.returncode == 2
    assert "There is no model" in done.stderr
    assert "Traceback" not in done.stderr


class Nothing(BaseHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Nothing."""


@needs_ray
def test_a_port_of_something_else_is_refused(tmp_path: Path) -> None:
    server = HTTPServer(("127.0.0.1", 0), Nothing)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    done = command(*GENERATE, "--out", str(tmp_path / "x"), f"--ray=127.0.0.1:{server.server_port}")
    server.shutdown()
    server.server_close()
    assert (done.returncode, "There is no Ray cluster at" in done.stderr) == (2, True), done.stderr


@needs_ray
def test_a_cluster_that_runs_is_joined_by_its_address(tmp_path: Path) -> None:
    """As a user has it: `ray start --head`, then the command with the address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ray = str(Path(sys.executable).parent / "ray")
    start = [ray, "start", "--head", f"--port={port}", "--num-cpus=2", "--include-dashboard=false", "--block"]
    head = subprocess.Popen(start, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until_reachable(port, head)
        done = command(*GENERATE, "--out", str(tmp_path / "run"), "--json", "--ray", f"127.0.0.1:{port}", "--engines", "2")
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["new"] == 10
    finally:
        head.terminate()
        head.wait(60)


def until_reachable(port: int, head: subprocess.Popen[bytes]) -> None:
    end = monotonic() + 300
    while monotonic() < end:
        if head.poll() is not None:
            pytest.skip("this machine is too busy to start a cluster in the 30 seconds that Ray gives it")
        try:
            _check_address(f"127.0.0.1:{port}")
        except UsageError:
            sleep(1)
        else:
            return
    raise AssertionError("the cluster did not start")
