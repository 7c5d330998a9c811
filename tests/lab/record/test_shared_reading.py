"""Several probe sets in one pass: the same probes as set by set, and the model reads each trace once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from cgr import Model
from cgr.engines.base import Answered, Done
from cgr.engines.scripted import ScriptedEngine, ScriptedSession
from cgr.errors import EngineError
from cgr.lab.record.generate import agenerate
from cgr.lab.record.jobs import Progress
from cgr.lab.record.probe import aprobe, aprobe_each
from cgr.lab.record.shared_reading import SharedReading, SharingSession
from cgr.lab.store import Store, probing_stage
from cgr.lab.store.config import ProbeRequest
from tests.lab.record.test_generate import ASKED, OWN, kept, plan
from tests.support import scripted, sure_from

THINKING = "so Wait a b c Alternatively d e </think>"
REQUESTS = (
    ProbeRequest(interval=2, name="two"),
    ProbeRequest(interval=3, name="three"),
    ProbeRequest(where="wait", name="waits"),
    ProbeRequest(interval=4, prefix="Else: {", name="else"),
    ProbeRequest("start", close_think="always", name="start"),
)
NAMES = [str(one.name) for one in REQUESTS]


async def test_the_probes_are_those_of_one_set_at_a_time(tmp_path: Path) -> None:
    engine = scripted(THINKING, sure_from(4))
    for name in ("together", "apart"):
        await agenerate(tmp_path / name, plan(budget=20), engine)
    assert await aprobe_each(tmp_path / "together", REQUESTS, engine, sessions=2) == NAMES
    for request in REQUESTS:
        await aprobe(tmp_path / "apart", request, engine)
    for name in NAMES:
        assert kept(tmp_path / "together", name) == kept(tmp_path / "apart", name)
        assert kept(tmp_path / "together", name)[0].probes


async def test_each_trace_is_read_once_and_its_positions_ascend(tmp_path: Path) -> None:
    engine = scripted(THINKING, sure_from(4))
    await agenerate(tmp_path, plan(ASKED[:1], budget=20), engine)
    engine.log.clear()
    progress = Progress(quiet=True)
    await aprobe_each(tmp_path, REQUESTS[:3], engine, progress=progress)
    probes = [int(line.split()[1]) for line in engine.log if line.startswith("probe")]
    assert probes == [1, 2, 3, 4, 5, 6, 6, 8]
    assert (progress.new, progress.probes, progress.thinking_tokens) == (1, 8, 8)


async def test_the_embedded_model_reads_a_trace_once_for_two_sets(model: Model, tmp_path: Path) -> None:
    await agenerate(tmp_path, plan(OWN[:1], budget=100, interval=16), model.engine)
    requests = [ProbeRequest(interval=16, name="a"), ProbeRequest(interval=24, prefix="So: \\boxed{", name="b")]
    await aprobe_each(tmp_path, requests, model.engine)
    probes = [probe for name in ("a", "b") for probe in kept(tmp_path, name)[0].probes]
    trace = kept(tmp_path, "a")[0]
    with Store.open(tmp_path) as store:
        prompt = len(store.prompt_ids((trace.question_id, trace.seed)))
    suffixes = sum(len(probe.suffix_ids) + 1 for probe in probes)
    assert len(probes) >= 5
    assert sum(probe.prefilled for probe in probes) <= prompt + trace.thinking_tokens + suffixes


async def test_after_an_interruption_only_what_is_missing_is_made(tmp_path: Path) -> None:
    engine = scripted(THINKING, sure_from(4))
    await agenerate(tmp_path, plan(budget=20), engine)
    await aprobe(tmp_path, REQUESTS[0], engine)
    engine.log.clear()
    await aprobe_each(tmp_path, REQUESTS[:2], engine)
    assert [line.split()[1] for line in engine.log if line.startswith("probe")] == ["3", "6"] * 2
    engine.log.clear()
    await aprobe_each(tmp_path, REQUESTS[:2], engine)
    assert not engine.log


class FailsOnElse(ScriptedEngine):
    """An engine that does not answer one of the prefixes."""

    async def open(self, *args: Any, **more: Any) -> ScriptedSession:
        return _FailsOnElse(self, args[1])


class _FailsOnElse(ScriptedSession):
    async def probe(self, suffix: Sequence[int], *args: Any, **more: Any) -> Answered:
        if "Else" in await self.engine.decode(suffix):
            raise EngineError("It does not answer that.")
        return await super().probe(suffix, *args, **more)


async def test_a_set_that_fails_does_not_lose_the_others(tmp_path: Path) -> None:
    plain = scripted(THINKING, sure_from(4))
    await agenerate(tmp_path, plan(budget=20), plain)
    engine = FailsOnElse(plain.thinking, plain.answers)
    await aprobe_each(tmp_path, (REQUESTS[0], REQUESTS[3], REQUESTS[4]), engine)
    with Store.open(tmp_path) as store:
        assert [len(store.probed(name)) for name in ("two", "else", "start")] == [2, 0, 2]
        assert [failure.message for failure in store.failures()] == ["It does not answer that."] * 2
    await aprobe_each(tmp_path, REQUESTS, plain)
    with Store.open(tmp_path) as store:
        assert not store.failures()


async def test_if_every_set_fails_the_trace_failed_in_each(tmp_path: Path) -> None:
    plain = scripted(THINKING, sure_from(4))
    await agenerate(tmp_path, plan(budget=20), plain)
    other = ProbeRequest(interval=2, prefix="Else again: {", name="again")
    progress = Progress(quiet=True)
    await aprobe_each(tmp_path, (REQUESTS[3], other), FailsOnElse(plain.thinking, plain.answers), progress=progress)
    with Store.open(tmp_path) as store:
        assert [len(store.failures(probing_stage(name))) for name in ("else", "again")] == [2, 2]
    assert (progress.failed, progress.new) == (2, 0)


class _Noting(ScriptedSession):
    """Notes the position of each probe."""

    async def probe(
        self, suffix: Sequence[int], limit: int, done: Done, guess: Sequence[int] = (), *, rewind: int = 0, top: int = 0
    ) -> Answered:
        self.noted = [*getattr(self, "noted", ()), self.at - rewind]
        await asyncio.sleep(0)
        return Answered()


async def loop(shared: SharedReading, positions: Sequence[int]) -> None:
    session, at = SharingSession(shared), 0
    for position in positions:
        await session.append([0] * (position - at))
        at = position
        await session.probe([], 1, lambda tokens: True)
    await session.close()
    await session.close()


@pytest.mark.parametrize("positions", [[[1, 5], [2, 3], [3]], [[], [4]], [[7], [7]], [[9, 10], [1]]])
async def test_probes_are_made_in_ascending_order(positions: list[list[int]]) -> None:
    engine = scripted("a </think>", sure_from(1))
    session = _Noting(engine)
    shared = SharedReading(session, range(20), len(positions))
    await asyncio.gather(*(loop(shared, some) for some in positions))
    assert session.noted == sorted(at for some in positions for at in some)


async def test_a_loop_that_is_cancelled_does_not_stop_the_others() -> None:
    engine = scripted("a </think>", sure_from(1))
    session = _Noting(engine)
    shared = SharedReading(session, range(20), 2)
    sharing = SharingSession(shared)
    waits = asyncio.create_task(sharing.probe([], 1, lambda tokens: True))
    await asyncio.sleep(0)
    waits.cancel()
    await asyncio.gather(waits, return_exceptions=True)
    await sharing.close()
    await loop(shared, [3, 4])
    assert session.noted == [3, 4]
