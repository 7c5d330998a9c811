"""Generation: every question and seed is stored as a whole; failures are listed and tried again."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from cgr import Model, Settings
from cgr.cli.shared.finish import failure_lines, summary_lines
from cgr.engines.base import Prompt, Sampling, Written
from cgr.engines.scripted import ScriptedEngine, ScriptedSession
from cgr.errors import EngineError, MissingCapability, UsageError
from cgr.lab.record.generate import Plan, agenerate
from cgr.lab.record.jobs import Progress, summarise
from cgr.lab.store import GENERATE, Store
from cgr.lab.store.config import OtherConfiguration
from cgr.lab.store.recorded import RecordedTrace
from cgr.model.problems import unseen
from cgr.records import Conversation, Question
from tests.support import SURE, UNSURE, scripted, sure_from

ASKED = (Question("q1", "One?", "7", "integer"), Question("q2", "Two?", "3", "math"))
OWN = tuple(
    Question(f"p{number}", problem.text, str(problem.answer), "integer")
    for number, problem in zip(range(3), unseen(), strict=False)
)


def plan(questions: Sequence[Question] = ASKED, seeds: int = 1, **options: Any) -> Plan:
    more = {name: options.pop(name) for name in ("probe", "logprobs", "written_tokens") if name in options}
    return Plan(tuple(questions), seeds, Settings.of(**({"budget": 8, "interval": 2} | options)), "test", **more)


def kept(folder: Path, probe_set: str | None = None) -> list[RecordedTrace]:
    with Store.open(folder) as store:
        return list(store.recorded(probe_set, whole=True))


@pytest.mark.parametrize(
    ("script", "tokens", "ended", "eos", "written"),
    [
        ("a b c </think> so it is 7 <eos> more", 3, "end_of_thinking", False, "so it is 7"),
        ("a b c <eos> more", 3, "end_of_thinking", True, ""),
        ("a b c d e f g h </think> so", 8, "budget", False, ""),
        ("a b c d e f g h i j", 8, "budget", False, ""),
        ("</think> so", 0, "end_of_thinking", False, "so"),
    ],
)
async def test_a_trace_ends_naturally_or_at_the_budget(
    tmp_path: Path, script: str, tokens: int, ended: str, eos: bool, written: str
) -> None:
    engine = scripted(script, lambda at, suffix: SURE if suffix.startswith("</think>") else UNSURE)
    await agenerate(tmp_path, plan(ASKED[:1]), engine)
    (trace,) = kept(tmp_path)
    assert (trace.thinking_tokens, trace.ended, trace.eos, trace.written) == (tokens, ended, eos, written)
    assert len(trace.ids) == tokens
    assert trace.text.split() == script.split()[:tokens]
    assert (trace.final.at, trace.final.answer) == (tokens, "7" if ended == "end_of_thinking" else "3")
    assert len(trace.final.tokens) == trace.final.decoded == 2
    assert (trace.question, trace.gold, trace.format) == ("One?", "7", "integer")


async def test_nothing_is_written_with_a_limit_of_zero(tmp_path: Path) -> None:
    await agenerate(tmp_path, plan(ASKED[:1], written_tokens=0), scripted("a </think> so it is"))
    assert kept(tmp_path)[0].written == ""


async def test_every_question_and_seed_is_generated_once(tmp_path: Path) -> None:
    await agenerate(tmp_path, plan(seeds=3), scripted("a b </think>"), sessions=2)
    assert [(trace.question_id, trace.seed) for trace in kept(tmp_path)] == [(q, s) for q in ("q1", "q2") for s in range(3)]


async def test_the_length_of_an_answer_depends_on_its_format(tmp_path: Path) -> None:
    long = [(str(digit), 0.9) for digit in range(10)]
    await agenerate(tmp_path, plan(), scripted("a </think>", lambda at, suffix: [*long, ("}", 0.9)]))
    integer, math = kept(tmp_path)
    assert (integer.final.answer, integer.final.closed) == ("0123", False)
    assert (math.final.answer, math.final.closed) == ("0123456789", True)


async def test_probes_during_generation_are_complete_and_do_not_stop_the_thinking(tmp_path: Path) -> None:
    engine = scripted("a b c d e f g h i", sure_from(4))
    await agenerate(tmp_path, plan(ASKED[:1], probe=True), engine)
    (trace,) = kept(tmp_path, "default")
    assert [(probe.at, probe.answer, probe.closed, probe.bound) for probe in trace.probes] == [
        (2, "3", True, False),
        (4, "7", True, False),
        (6, "7", True, False),
    ]
    assert (trace.thinking_tokens, trace.ended) == (8, "budget")


async def test_a_run_can_grow_but_not_change(tmp_path: Path) -> None:
    engine = scripted("a b </think>")
    await agenerate(tmp_path, plan(ASKED[:1]), engine)
    await agenerate(tmp_path, plan(ASKED, seeds=2), engine)
    assert len(kept(tmp_path)) == 4
    with pytest.raises(OtherConfiguration, match="budget is 8 there and 16 here"):
        await agenerate(tmp_path, plan(budget=16), engine)


class FailingEngine(ScriptedEngine):
    """Fails on some questions, and counts the sessions that are open at once."""

    def __init__(self, fails: Sequence[str] = ()) -> None:
        super().__init__(("a", "b", "c", "</think>"), lambda at, suffix: SURE)
        self.fails, self.now, self.most = fails, 0, 0

    async def prompt(self, conversation: Conversation) -> tuple[int, ...]:
        if str(conversation).startswith(tuple(self.fails)):
            raise EngineError("It failed.", "Try again.")
        return await super().prompt(conversation)

    async def open(
        self, prompt: Prompt, sampling: Sampling, *, room: int = 0, overlap: bool = False, wait: float | None = None
    ) -> ScriptedSession:
        await asyncio.sleep(0)
        self.now += 1
        self.most = max(self.most, self.now)
        engine = self

        class Counted(ScriptedSession):
            async def write(self, limit: int) -> AsyncIterator[Written]:
                await asyncio.sleep(0)
                async for piece in super().write(limit):
                    yield piece

            async def close(self) -> None:
                engine.now -= 1

        return Counted(self)


async def test_the_number_of_open_sessions_is_limited(tmp_path: Path) -> None:
    engine = FailingEngine()
    await agenerate(tmp_path, plan(seeds=4), engine, sessions=3)
    assert (engine.most, engine.now) == (3, 0)


async def test_failures_are_listed_and_tried_again(tmp_path: Path) -> None:
    progress = Progress(quiet=True)
    wanted = plan(seeds=3)
    await agenerate(tmp_path, wanted, FailingEngine(["One"]), sessions=2, progress=progress)
    summary = summarise(tmp_path, wanted.wanted(), progress)
    assert (summary.traces, summary.new, summary.failed, progress.failed) == (3, 3, 3, 3)
    assert {(one.question_id, one.seed) for one in summary.failures} == {("q1", 0), ("q1", 1), ("q1", 2)}
    assert failure_lines(summary.failures) == [
        "failed: q1 (seed 0), q1 (seed 1), q1 (seed 2): It failed.",
        "hint:   Try again.",
    ]
    assert "3 failed" in summary_lines(summary)[-1]
    await agenerate(tmp_path, wanted, FailingEngine(), sessions=2, progress=(again := Progress(quiet=True)))
    summary = summarise(tmp_path, wanted.wanted(), again)
    assert (summary.traces, summary.new, summary.failed) == (6, 3, 0)


async def test_work_ends_if_an_engine_always_fails(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="5 traces in a row failed"):
        await agenerate(tmp_path, plan(seeds=50), FailingEngine(["One", "Two"]), sessions=2)
    with Store.open(tmp_path) as store:
        assert 5 <= len(store.failures(GENERATE)) < 10  # of 100


class ThreeDone(Progress):
    """Sets an event when three traces are done."""

    def __init__(self) -> None:
        super().__init__(quiet=True)
        self.event = asyncio.Event()

    def trace_done(self) -> None:
        super().trace_done()
        if self.new == 3:
            self.event.set()


async def test_an_interrupted_call_can_be_continued(tmp_path: Path) -> None:
    engine, wanted, progress = FailingEngine(), plan(seeds=5), ThreeDone()
    task = asyncio.create_task(agenerate(tmp_path, wanted, engine, sessions=2, progress=progress))
    three_done = asyncio.create_task(progress.event.wait())
    await asyncio.wait({task, three_done}, return_when=asyncio.FIRST_COMPLETED)
    assert three_done.done()
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    before = kept(tmp_path)
    assert 3 <= len(before) < 10
    assert engine.now == 0
    await agenerate(tmp_path, wanted, engine, sessions=2, progress=(rest := Progress(quiet=True)))
    assert rest.new == 10 - len(before)
    await agenerate(tmp_path / "whole", wanted, FailingEngine())
    assert [(t.question_id, t.seed, t.text) for t in kept(tmp_path)] == [
        (t.question_id, t.seed, t.text) for t in kept(tmp_path / "whole")
    ]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [({"seeds": 0}, "With 0 seeds"), ({"questions": ()}, "no questions"), ({"written_tokens": -1}, "fewer than 0")],
)
def test_a_plan_without_traces_is_refused(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        plan(**wrong)


async def test_log_probabilities_need_an_engine_that_returns_them(tmp_path: Path) -> None:
    with pytest.raises(MissingCapability, match="does not return the log-probabilities of thinking"):
        await agenerate(tmp_path / "r", plan(logprobs=True), scripted("a </think>"))
    assert not (tmp_path / "r").exists()


async def test_progress_is_shown_only_on_a_terminal(tmp_path: Path) -> None:
    shown = {}
    for terminal in (True, False):
        console = Console(file=(file := io.StringIO()), force_terminal=terminal, width=120)
        await agenerate(tmp_path / str(terminal), plan(seeds=2), FailingEngine(["One"]), progress=Progress(console=console))
        shown[terminal] = file.getvalue()
    assert "2/4" in shown[True]
    assert "tokens/s" in shown[True]
    assert "2 failed" in shown[True]
    assert shown[False] == ""


async def test_a_generated_trace_equals_the_trace_of_solve(model: Model, tmp_path: Path) -> None:
    """On the embedded model: probed or not, alone or with others, with log-probabilities or without."""
    ways: dict[str, tuple[dict[str, Any], int]] = {
        "plain": ({}, 1),
        "probed": ({"probe": True, "interval": 24}, 2),
        "logged": ({"logprobs": True}, 2),
    }
    for name, (options, sessions) in ways.items():
        await agenerate(tmp_path / name, plan(OWN, **({"budget": 80} | options)), model.engine, sessions=sessions)
    traces = {name: kept(tmp_path / name) for name in ways}
    live = [(await model.asolve(q.text, rule="fixed-budget", budget=80, full=True)).thinking for q in OWN]
    assert [trace.text for trace in traces["plain"]] == live
    for name in ways:
        assert [trace.ids for trace in traces[name]] == [trace.ids for trace in traces["plain"]]
        assert [trace.final.certainty for trace in traces[name]] == pytest.approx(
            [trace.final.certainty for trace in traces["plain"]], abs=1e-5
        )
    for trace in traces["logged"]:
        assert len(trace.logprobs) == len(trace.ids) == trace.thinking_tokens
        assert all(value <= 0 for value in trace.logprobs)
        assert any(value < 0 for value in trace.logprobs)


async def test_text_written_after_a_natural_end_is_stored(model: Model, tmp_path: Path) -> None:
    """An easy problem, a few seeds: the embedded model ends its thinking, then writes its answer."""
    easy = [Question("e", "Find x, the last three digits of 313*21.", "573", "integer")]
    await agenerate(tmp_path, plan(easy, seeds=4, budget=1500), model.engine)
    ended = [trace for trace in kept(tmp_path) if trace.ended == "end_of_thinking" and not trace.eos]
    assert ended
    for trace in ended:
        assert "boxed" in trace.written
        assert "</think>" not in trace.text
