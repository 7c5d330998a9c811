"""The transformers engine: loading without blocking, missing packages, sessions that wait, and conversations."""

from __future__ import annotations

import asyncio
import sys
import threading
from typing import Any

import pytest

from cgr.engines.base import FILTERS, Sampling
from cgr.engines.hf.engine import TransformersEngine
from cgr.engines.open import ModelOptions
from cgr.errors import Busy, DoesNotFit, EngineError, UsageError
from cgr.records import Message
from tests.engines.hf.models import GREEDY, opened, thought
from tests.support import QUESTION

LONG_ENOUGH = 30.0  # seconds; a bound for what should take none


@pytest.mark.parametrize("missing", ["torch", "transformers"])
async def test_missing_packages_are_named(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(UsageError, match=missing) as caught:
        await TransformersEngine("anything").connect()
    assert caught.value.hint == "pip install 'certainty-guided-reasoning[transformers]'"


async def test_nothing_works_before_connect() -> None:
    engine = TransformersEngine("anything")
    for use in (lambda: engine.info, lambda: engine.capabilities):
        with pytest.raises(EngineError, match="anything is not loaded yet"):
            use()
    with pytest.raises(EngineError, match="anything is not loaded yet"):
        await engine.open(QUESTION, GREEDY, room=8)
    await engine.close()


async def test_connect_does_not_block_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """The load ends only once the event loop has made progress; calls at the same time load once."""
    ticked = threading.Event()
    loads: list[bool] = []

    def slow_load(name: str, options: ModelOptions) -> Any:
        loads.append(ticked.wait(LONG_ENOUGH))
        return object()

    monkeypatch.setattr("cgr.engines.hf.load.load", slow_load)
    engine = TransformersEngine("anything")

    async def tick() -> None:
        for _ in range(10):
            await asyncio.sleep(0.001)
        ticked.set()

    await asyncio.gather(engine.connect(), engine.connect(), tick())
    await engine.connect()
    assert loads == [True]


async def test_a_failed_connect_can_be_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    results: list[Any] = [UsageError("no"), object()]

    def load(name: str, options: ModelOptions) -> Any:
        if isinstance(result := results.pop(0), UsageError):
            raise result
        return result

    monkeypatch.setattr("cgr.engines.hf.load.load", load)
    engine = TransformersEngine("anything")
    with pytest.raises(UsageError, match="no"):
        await engine.connect()
    await engine.connect()
    assert not results


@pytest.mark.heavy
async def test_what_is_known_after_connect(hf: TransformersEngine) -> None:
    info = hf.info
    assert (info.engine, info.context, info.model_context, info.sessions) == ("transformers", 3072, 3072, 8)
    assert (info.interval, info.budget, info.max_answer_tokens) == (48, 2048, 4)
    assert (info.threads, info.template_opens) == (1, True)
    assert hf.capabilities.sampling == FILTERS


@pytest.mark.heavy
async def test_more_sessions_than_places_wait_for_each_other() -> None:
    small = await opened(sessions=2, threads=1)
    traces = await asyncio.gather(*(thought(small, QUESTION, Sampling(9.0, seed=seed), 24) for seed in range(5)))
    assert len(set(traces)) == 5
    assert traces[3] == await thought(small, QUESTION, Sampling(9.0, seed=3), 24)
    assert small.loaded.scheduler.cache.rows == 2


@pytest.mark.heavy
async def test_waiting_is_bounded_and_frees_only_its_own_place() -> None:
    small = await opened(sessions=1, threads=1)
    first = await small.open(QUESTION, GREEDY, room=8)
    for _ in range(3):
        with pytest.raises(Busy, match="All 1 sessions are in use"):
            await small.open(QUESTION, GREEDY, room=8, wait=0.001)
    await first.think(8)
    await first.close()
    await first.close()  # a second close must not free a second place
    second = await small.open(QUESTION, GREEDY, room=8, wait=LONG_ENOUGH)
    with pytest.raises(Busy):
        await small.open(QUESTION, GREEDY, room=8, wait=0.001)
    await second.close()


@pytest.mark.heavy
@pytest.mark.parametrize("wait", [None, LONG_ENOUGH])
async def test_cancelled_waiting_loses_no_place(wait: float | None) -> None:
    """Also when the place becomes free at the moment of the cancellation."""
    small = await opened(sessions=1, threads=1)
    for turns in range(6):
        first = await small.open(QUESTION, GREEDY, room=8, wait=LONG_ENOUGH)
        second = asyncio.create_task(small.open(QUESTION, GREEDY, room=8, wait=wait))
        await asyncio.sleep(0.005)
        if turns:
            await first.close()
        for _ in range(turns - 1):
            await asyncio.sleep(0)
        second.cancel()
        await asyncio.gather(second, return_exceptions=True)
        if not second.cancelled():
            await second.result().close()
        await first.close()
    last = await small.open(QUESTION, GREEDY, room=8, wait=LONG_ENOUGH)
    with pytest.raises(Busy):
        await small.open(QUESTION, GREEDY, room=8, wait=0.001)
    await last.close()


@pytest.mark.heavy
async def test_one_event_loop_after_another(connected_once: TransformersEngine) -> None:
    first = await asyncio.to_thread(lambda: asyncio.run(thought(connected_once, QUESTION, GREEDY, 12)))
    assert first == await thought(connected_once, QUESTION, GREEDY, 12)


@pytest.mark.heavy
async def test_two_event_loops_at_the_same_time() -> None:
    """Each has its own places; their sessions do not disturb each other."""
    small = await opened(sessions=1, threads=1)
    samplings = [Sampling(1.2, seed=seed) for seed in range(4)]
    alone = [await thought(small, QUESTION, sampling, 40) for sampling in samplings]

    def elsewhere(sampling: Sampling) -> tuple[int, ...]:
        return asyncio.run(thought(small, QUESTION, sampling, 40))

    assert await asyncio.gather(*(asyncio.to_thread(elsewhere, sampling) for sampling in samplings)) == alone


@pytest.mark.heavy
async def test_a_conversation_with_a_system_turn_and_several_turns(hf: TransformersEngine) -> None:
    turns = (
        Message("system", "Be brief."),
        Message("user", "Find x, 3 + 4."),
        Message("assistant", "7"),
        Message("user", QUESTION),
    )
    prompt = await hf.prompt(turns)
    assert await hf.decode(prompt) == (
        "<|user|>Be brief.<|end|><|user|>Find x, 3 + 4.<|end|><|assistant|>7<|end|>"
        f"<|user|>{QUESTION}<|end|><|assistant|><think>"
    )
    session = await hf.open(turns, GREEDY, room=8)
    assert session.prompt == prompt
    await session.close()
    assert await hf.prompt((Message("user", QUESTION),)) == await hf.prompt(QUESTION)


@pytest.mark.heavy
async def test_a_context_that_is_too_small_is_refused(hf: TransformersEngine) -> None:
    with pytest.raises(DoesNotFit, match="the context has 3072"):
        await hf.open(QUESTION, GREEDY, room=3072)
    session = await hf.open(QUESTION, GREEDY, room=8)
    with pytest.raises(DoesNotFit):
        await session.think(2048)
    await session.close()
