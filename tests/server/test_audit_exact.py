"""An audit on the embedded model ends as the plain run of the same seed does: the same tokens, the same answer."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cgr import open_model
from cgr.engines.base import Engine, Sampling
from cgr.engines.llama.engine import LlamaEngine
from cgr.records import Message
from cgr.rules.same_answer import agrees
from cgr.server.audit.continued import end_of_trace
from cgr.server.audit.options import PromiseOptions
from cgr.server.audit.promise import Promise
from cgr.server.config import Mode, ServeConfig
from cgr.server.generation import Answer, Generation
from cgr.settings import Settings
from tests.server.promised import calibration, written
from tests.server.support import LONG, served
from tests.support import OTHERS, QUESTION

HARDER = "Start with x=864. Apply x=(8x+97) mod 1000, 5 times. Find x."
CONFIG = ServeConfig()


@pytest.fixture
async def engine() -> AsyncIterator[Engine]:
    opened = open_model(sessions=3)
    async with opened:
        yield opened.engine


async def _calm() -> None:
    pass


async def _answered(engine: Engine, question: str, settings: Settings, mode: Mode) -> Answer:
    request = Generation("id", "embedded", (Message("user", question),), settings, settings.sampling(), mode)
    answer = Answer(engine, CONFIG, request, time.perf_counter())
    async with aclosing(answer.__aiter__()) as events:
        async for _ in events:
            pass
    return answer


@pytest.mark.parametrize(("interval", "rule"), [(32, "cgr"), (20, "cgr"), (7, "cgr"), (20, "cgr-forced")])
async def test_the_rest_of_the_trace_is_that_of_the_plain_run(engine: Engine, interval: int, rule: str) -> None:
    assert isinstance(engine, LlamaEngine)
    stopped = 0
    for number, question in enumerate((QUESTION, HARDER, *OTHERS)):
        settings = Settings(rule=rule, threshold=0.3, interval=interval, budget=512, instruction="", seed=number)
        early = await _answered(engine, question, settings, "on")
        assert early.result is not None
        assert early.opened is not None
        decision = early.result.outcome.decision
        if decision.stop_cause != "certainty":
            continue
        stopped += 1
        end = await end_of_trace(engine, early.opened, early.result.outcome.ids[: decision.thinking_tokens], _calm)
        plain = await _answered(engine, question, replace(settings, rule="cgr"), "shadow")
        assert plain.result is not None
        whole = plain.result.outcome
        if decision.forced:
            continue
        assert end.ids == whole.ids
        assert len(end.ids) > decision.thinking_tokens or whole.decision.thinking_tokens == decision.thinking_tokens
        assert (end.final.answer, end.final.certainty) == (whole.decision.answer, whole.decision.certainty)
        final = whole.decision.final
        assert final is not None
        assert end.differs(decision) is not agrees(decision.answer, decision.closed, final)
    assert stopped >= 2


async def test_parameters_of_a_request_replace_those_of_the_file(engine: Engine) -> None:
    """A request that names one parameter of a rule gets the defaults of the others."""
    given = {"agree": 3}
    promise = calibration(
        (0.9, 0.8), rule="sure-twice", parameters=given, interval=20, budget=400, probe={}, model="embedded"
    )
    settings = Settings(rule="sure-twice", threshold=0.8, interval=20, budget=400, instruction="", parameters=given)
    served = Promise(PromiseOptions(promise, 0.8), settings)

    def why(**changes: Any) -> str:
        resolved = replace(settings, **changes).resolve(engine.info)
        return served.coverage(Generation("", "", "?", resolved.settings, Sampling()), resolved).why

    assert why() == ""
    assert why(threshold=0.9) == ""
    assert "does not cover threshold 0.85" in why(threshold=0.85)
    assert "with other parameters" in why(parameters={})
    assert "fixes the parameters" in why(parameters={"agree": 4})


def test_losses_of_the_server_are_those_of_the_plain_run(tmp_path: Path) -> None:
    """A careless threshold, so that some answers change; shadow replies on the same seeds say which."""
    model = open_model()
    info = model.engine.info
    model.close()
    file = written(
        tmp_path,
        passed=(0.6, 0.3),
        model=info.name,
        fingerprint=info.fingerprint,
        interval=20,
        budget=400,
        probe={},
        epsilon=0.9,
    )
    audits = ("--audit", "1", "--audit-sessions", "8")
    with served("--calibration", str(file), *audits, "--log", "json") as server:
        expected = 0
        questions = [(question, seed) for question in (QUESTION, HARDER, *OTHERS) for seed in range(2)]
        for question, seed in questions:
            stop = server.chat(question, seed=seed).json()["cgr"]
            whole = server.chat(question, seed=seed, cgr="shadow").json()["cgr"]
            assert stop["threshold"] == 0.3
            expected += stop["stop_cause"] == "certain" and stop["answer"] != whole["answer"]
        until = time.monotonic() + LONG
        while server.metric("cgr_audit_total") + server.metric("cgr_audit_dropped_total") < len(questions):
            assert time.monotonic() < until
            time.sleep(0.05)
        if not server.metric("cgr_audit_dropped_total"):
            assert server.metric("cgr_audit_losses_total") == expected
        state = json.loads((tmp_path / "calibration.audit.json").read_text())
        assert state["failed"] == 0
