"""Packed probing: all cuts in one pass, with the same result as probing them one by one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from cgr.engines.base import Answered, Done, Sampling
from cgr.engines.scripted import ScriptedEngine, ScriptedSession
from cgr.lab.record.generate import agenerate
from cgr.lab.record.probe import aprobe
from cgr.lab.record.retrace import RetraceEngine, RetraceSession
from cgr.lab.store.config import ProbeRequest
from cgr.lab.store.recorded import RecordedTrace
from cgr.records import Probe, Token
from tests.lab.record.test_generate import ASKED, kept, plan
from tests.support import UNSURE, sure_from

SUFFIX, OTHER_SUFFIX = (90,), (91,)
CUTS = (2, 4, 6)
TRACE = RecordedTrace("q", 0, "7", 7, "budget", 8, Probe(7, "7", 1.0, True), ids=tuple(range(7)))


class Packing(ScriptedEngine):
    """Answers all cuts at once, and keeps the calls."""

    def __init__(self) -> None:
        super().__init__(["a", "b", "c", "d", "e", "f", "g"], sure_from(4))
        self.capabilities = replace(self.capabilities, packed=True)
        self.calls: list[tuple[tuple[int, ...], tuple[int, ...]]] = []
        self.prompts: list[tuple[int, ...]] = []

    async def probe_many(
        self,
        prompt: Sequence[int],
        trace: Sequence[int],
        cuts: Sequence[int],
        suffix: Sequence[int],
        limit: int,
        done: Done,
        *,
        top: int = 0,
    ) -> list[Answered]:
        self.calls.append((tuple(cuts), tuple(suffix)))
        self.prompts.append(tuple(prompt))
        return [Answered((Token(cut, f"packed {cut}", 0.0),)) for cut in cuts]


class SamePacking(Packing):
    """Its packed answers equal those of a session."""

    async def probe_many(
        self,
        prompt: Sequence[int],
        trace: Sequence[int],
        cuts: Sequence[int],
        suffix: Sequence[int],
        limit: int,
        done: Done,
        *,
        top: int = 0,
    ) -> list[Answered]:
        await super().probe_many(prompt, trace, cuts, suffix, limit, done, top=top)
        found = []
        for cut in cuts:
            session = ScriptedSession(self)
            session.at = cut
            found.append(await session.probe(suffix, limit, done))
        return found


async def opened(engine: Packing) -> RetraceSession:
    """A session with the trace read up to the first cut, and probed there."""
    for word in ("suffix", "other"):
        engine.id_of(word)
    session = await RetraceEngine(engine, TRACE, cuts=CUTS).open((1, 2), Sampling(), room=10)
    await session.think(2)
    assert await text(session, SUFFIX) == "packed 2"
    return session


async def text(session: RetraceSession, suffix: Sequence[int], rewind: int = 0) -> str:
    answered = await session.probe(suffix, 4, lambda tokens: False, rewind=rewind)
    return answered.tokens[0].text


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Packing:
    """Its sessions answer with their own position."""
    engine = Packing()
    engine.answers = lambda at, suffix: [(f"session {at}", 1 / math.e)]

    async def decode(ids: Sequence[int]) -> str:
        return ""

    monkeypatch.setattr(engine, "decode", decode)
    return engine


async def test_all_cuts_are_answered_by_one_call(engine: Packing) -> None:
    session = await opened(engine)
    for cut in (4, 6):
        await session.think(2)
        assert await text(session, SUFFIX) == f"packed {cut}"
    assert engine.calls == [(CUTS, SUFFIX)]


async def test_a_probe_with_another_suffix_goes_to_the_session(engine: Packing) -> None:
    session = await opened(engine)
    await session.think(2)
    assert await text(session, OTHER_SUFFIX) == "session 4"
    assert await text(session, SUFFIX) == "packed 4"


async def test_a_probe_after_a_rewind_goes_to_the_session(engine: Packing) -> None:
    session = await opened(engine)
    await session.think(2)
    assert await text(session, SUFFIX, rewind=1) == "session 3"
    assert await text(session, SUFFIX) == "packed 4"


async def test_a_probe_at_another_position_goes_to_the_session(engine: Packing) -> None:
    session = await opened(engine)
    await session.think(1)
    assert await text(session, SUFFIX) == "session 3"
    assert len(engine.calls) == 1


async def test_a_question_is_turned_into_ids(engine: Packing) -> None:
    session = await RetraceEngine(engine, TRACE, cuts=CUTS).open("One? Two?", Sampling(), room=10)
    await session.think(2)
    await text(session, SUFFIX)
    assert engine.prompts == [await engine.encode("One? Two?")]


async def test_a_run_has_the_same_probes_packed_or_not(tmp_path: Path) -> None:
    engine = SamePacking()
    for name in ("packed", "single"):
        await agenerate(tmp_path / name, plan(ASKED[:1]), engine)
    await aprobe(tmp_path / "packed", ProbeRequest(), engine)
    assert [cuts for cuts, _ in engine.calls] == [(2, 4, 6)]
    engine.capabilities = replace(engine.capabilities, packed=False)
    await aprobe(tmp_path / "single", ProbeRequest(), engine)
    assert len(engine.calls) == 1
    packed, single = (kept(tmp_path / name, "default")[0] for name in ("packed", "single"))
    assert [(probe.at, probe.answer, probe.certainty) for probe in packed.probes] == [
        (probe.at, probe.answer, probe.certainty) for probe in single.probes
    ]
    assert [probe.answer for probe in packed.probes] == [UNSURE[0][0], "7", "7"]
