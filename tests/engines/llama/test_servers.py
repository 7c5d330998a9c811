"""Several llama.cpp servers for one small file: how many, which session is where, and that the traces stay the same."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from cgr import open_model
from cgr.cli.shared.finish import sessions_for
from cgr.engines.base import Sampling
from cgr.engines.completions.client import CompletionClient
from cgr.engines.completions.engine import own_slots
from cgr.engines.llama import engine as llama
from cgr.engines.llama.engine import MAX_SERVERS, SMALL_BYTES, TURNS, LlamaEngine, servers_and_threads
from cgr.engines.open import ModelOptions, find_model
from tests.support import OTHERS, QUESTION, certainties, gist


@pytest.fixture
def large(tmp_path: Path) -> Path:
    """A sparse file of a large model's size."""
    path = tmp_path / "large.gguf"
    with path.open("wb") as file:
        file.truncate(SMALL_BYTES)
    return path


@pytest.mark.parametrize(
    ("cores", "sessions", "threads", "wanted"),
    [
        (2, 1, None, (1, 1)),
        (2, 2, None, (2, 1)),
        (2, 8, None, (2, 1)),
        (8, 2, None, (2, 2)),  # half of each server's share of the cores
        (8, 8, None, (8, 1)),
        (64, 64, None, (MAX_SERVERS, 4)),
        (2, 8, 1, (1, 1)),
        (2, 1, 2, (1, 2)),
        (2, 8, 6, (6, 1)),
        (2, 2, 6, (2, 3)),
    ],
)
def test_how_many(
    monkeypatch: pytest.MonkeyPatch, cores: int, sessions: int, threads: int | None, wanted: tuple[int, int]
) -> None:
    monkeypatch.setattr(llama, "cores", lambda: cores)
    assert servers_and_threads(find_model(None), ModelOptions(sessions=sessions, threads=threads)) == wanted


def test_a_large_file_has_one(monkeypatch: pytest.MonkeyPatch, large: Path) -> None:
    monkeypatch.setattr(llama, "cores", lambda: 8)
    assert servers_and_threads(large, ModelOptions(sessions=8)) == (1, 4)
    assert servers_and_threads(large, ModelOptions(sessions=8, threads=6)) == (1, 6)


def test_a_gpu_computes_everything_in_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(llama, "_only_cpu", lambda: False)
    assert servers_and_threads(find_model(None), ModelOptions(sessions=8, threads=8)) == (1, 8)


def test_sessions_by_default(monkeypatch: pytest.MonkeyPatch, large: Path) -> None:
    monkeypatch.setattr(llama, "cores", lambda: 3)
    assert sessions_for(None, ModelOptions()) == 3
    assert sessions_for(None, ModelOptions(str(large))) == 1
    assert sessions_for(None, ModelOptions("hf:some/model")) == 1
    assert sessions_for(None, ModelOptions("nowhere.gguf")) == 1
    assert sessions_for(None, ModelOptions(base_url=("http://a", "http://b"))) == 32
    assert sessions_for(5, ModelOptions()) == 5
    monkeypatch.setattr(llama, "cores", lambda: 64)
    assert sessions_for(None, ModelOptions()) == MAX_SERVERS


@pytest.mark.parametrize("width", [1, 2])
@pytest.mark.parametrize(("sessions", "servers"), [(1, 1), (8, 2), (5, 3), (256, 8)])
def test_each_slot_belongs_to_one_session(sessions: int, servers: int, width: int) -> None:
    places = own_slots(sessions, servers, width)
    assert len(places) == sessions
    assert [place.server for place in places] == [number % servers for number in range(sessions)]
    for server in range(servers):
        slots = [slot for place in places if place.server == server for slot in place.slots]
        assert sorted(slots) == list(range(len(slots)))
        thinking = [place.slots[0] for place in places if place.server == server]
        assert thinking == list(range(len(thinking)))  # those that follow each other are computed in one batch
        assert len(slots) in (sessions // servers * width, (sessions // servers + 1) * width)


@pytest.mark.parametrize("overlap", [False, True])
async def test_the_traces_are_the_same_tokens(overlap: bool) -> None:
    questions = (QUESTION, *OTHERS, QUESTION)
    options: dict[str, Any] = {"budget": 96, "interval": 24, "full": True, "rule": "only-watches"}
    async with open_model(threads=1) as one:
        assert isinstance(one.engine, LlamaEngine)
        assert len(one.engine.connected.addresses) == 1
        alone = [await one.asolve(question, **options, seed=seed) for seed, question in enumerate(questions)]
    async with open_model(sessions=5, threads=2, overlap=overlap) as several:
        assert isinstance(several.engine, LlamaEngine)
        assert len(set(several.engine.connected.addresses)) == 2
        solving = (
            several.asolve(question, **options, seed=seed, overlap=overlap) for seed, question in enumerate(questions)
        )
        together = await asyncio.gather(*solving)
    assert [gist(solution) for solution in together] == [gist(solution) for solution in alone]
    for solution, other in zip(together, alone, strict=True):
        assert certainties(solution) == pytest.approx(certainties(other), abs=1e-4)


async def test_sessions_go_to_the_server_with_the_fewest() -> None:
    async with open_model(sessions=4, threads=2, budget=32) as model:
        first, second = [await model.engine.open(QUESTION, Sampling(), room=8) for _ in range(2)]
        assert first.replica.server is not second.replica.server  # type: ignore[attr-defined]
        await first.close()
        third = await model.engine.open(QUESTION, Sampling(), room=8)
        assert third.replica.server is first.replica.server  # type: ignore[attr-defined]
        await second.close()
        await third.close()


async def test_chunks_and_probes_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """More sequences in a batch cost a small model more than they save."""
    at_once: list[int] = []
    running = 0
    complete = CompletionClient.complete

    async def counted(self: CompletionClient, server: Any, request: Any) -> Any:
        nonlocal running
        running += 1
        at_once.append(running)
        try:
            return await complete(self, server, request)
        finally:
            running -= 1

    monkeypatch.setattr(CompletionClient, "complete", counted)
    async with open_model(sessions=6, threads=1) as model:
        solving = (model.asolve(QUESTION, budget=96, interval=32, rule="only-watches", seed=seed) for seed in range(6))
        await asyncio.gather(*solving)
    assert max(at_once) == TURNS
