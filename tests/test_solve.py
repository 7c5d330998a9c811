"""`cgr.solve` and its kin, on the embedded model."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest

import cgr
from cgr import Decided, Event, Model, Probed, Solution, Thinking
from cgr.engines.base import Sampling
from cgr.engines.llama.engine import LlamaEngine
from cgr.engines.open import DEFAULT_CONTEXT
from cgr.engines.open import PROMPT_ROOM as OPEN_ROOM
from cgr.errors import Busy, DoesNotFit, EngineError, MissingCapability, ModelNotFound, NotAModel, UnknownName, UsageError
from cgr.records import Conversation, Message
from cgr.rules import base
from cgr.settings import BUDGET
from cgr.solve import EMBEDDED, find_model
from tests.support import JSON_KEYS, OTHERS, QUESTION, gist, scripted


def test_one_call() -> None:
    events: list[Event] = []
    solution = cgr.solve(QUESTION, budget=64, interval=16, on_event=events.append)
    assert isinstance(solution, Solution)
    assert (solution.question, solution.model, solution.engine) == (QUESTION, "embedded", "llama.cpp")
    assert (solution.rule, solution.threshold, solution.interval, solution.budget) == ("cgr", 0.99, 16, 64)
    assert solution.stop_cause in ("certainty", "end_of_thinking", "budget")
    assert 0 <= solution.certainty <= 1
    assert solution.thinking_tokens <= 64
    assert solution.probe_tokens == sum(probe.decoded for probe in solution.probes)
    assert {type(event) for event in events} == {Thinking, Probed, Decided}


async def test_asynchronously(model: Model) -> None:
    alone = await cgr.asolve(QUESTION, budget=64)
    assert gist(alone) == gist(await model.asolve(QUESTION, budget=64))


def test_a_model_for_many_questions() -> None:
    with cgr.open_model() as model:
        first, again = (model.solve(QUESTION, budget=32, interval=16) for _ in range(2))
    assert gist(first) == gist(again)


async def test_defaults_are_the_models_own(model: Model) -> None:
    info = model.engine.info
    solution = await model.asolve(QUESTION, rule="no-thinking")
    assert (solution.interval, solution.budget) == (info.interval, info.budget)
    assert solution.thinking_tokens == 0
    assert solution.thinking == ""


async def test_the_summary_is_what_json_prints(model: Model) -> None:
    solution = await model.asolve(QUESTION, budget=64, interval=16)
    summary = json.loads(json.dumps(solution.summary()))
    assert summary.keys() >= JSON_KEYS
    assert len(summary["probes"]) == len(solution.probes) > 0
    for shown, probe in zip(summary["probes"], solution.probes, strict=True):
        assert (shown["at"], shown["answer"], shown["closed"]) == (probe.at, probe.answer, probe.closed)
        assert shown["certainty"] == probe.certainty


async def test_a_solution_round_trips(model: Model) -> None:
    solution = await model.asolve(QUESTION, budget=48, interval=16)
    assert Solution.from_json(solution.to_json()) == solution


async def test_a_sure_probe_stops(model: Model) -> None:
    """At a threshold below what is seen at the first closed probe, it stops there and decodes nothing more."""
    watched = await model.asolve(QUESTION, rule="only-watches", budget=128)
    sure = [probe for probe in watched.probes if probe.closed and probe.answer]
    assert sure
    solution = await model.asolve(QUESTION, threshold=sure[0].certainty / 2, budget=128)
    assert (solution.stop_cause, solution.answer_tokens) == ("certainty", 0)
    assert solution.thinking_tokens == solution.probes[-1].at <= sure[0].at
    assert watched.thinking.startswith(solution.thinking)


async def test_abstention(model: Model) -> None:
    options: dict[str, Any] = {"rule": "fixed-budget", "budget": 16, "threshold": 1.0, "max_answer_tokens": 1}
    kept = await model.asolve(QUESTION, **options, at_budget="abstain")
    given = await model.asolve(QUESTION, **options)
    assert (kept.abstained, kept.answer) == (True, None)
    assert (given.abstained, given.answer is None) == (False, False)
    assert kept.certainty == pytest.approx(given.certainty, abs=1e-5)


async def test_close_think_asks_another_question(
    model: Model,
) -> None:
    never, always = [
        await model.asolve(QUESTION, rule="only-watches", budget=64, close_think=policy) for policy in ("never", "always")
    ]
    assert always.thinking == never.thinking
    assert len(always.probes[0].suffix_ids) == len(never.probes[0].suffix_ids) + 1


async def test_a_prefix_of_ones_own(model: Model) -> None:
    solution = await model.asolve(QUESTION, rule="only-watches", budget=64, prefix="\\boxed{")
    assert {probe.suffix for probe in solution.probes} == {"\\boxed{"}


async def test_a_loop_is_running_already(model: Model) -> None:
    """As in a notebook: the plain calls work, and block the loop."""
    wanted = await model.asolve(QUESTION, budget=48)
    assert gist(model.solve(QUESTION, budget=48)) == gist(wanted)
    assert gist(cgr.solve(QUESTION, budget=48)) == gist(wanted)
    with cgr.open_model() as other:
        assert gist(other.solve(QUESTION, budget=48)) == gist(wanted)


async def test_overlap_must_be_asked_for_when_opening() -> None:
    async with cgr.open_model() as plain:
        with pytest.raises(UsageError, match="opened without overlap"):
            await plain.asolve(QUESTION, overlap=True, budget=32)


async def test_what_a_rule_needs_and_the_engine_lacks(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is said at once, and costs no slot: as many questions as before still fit."""
    monkeypatch.setattr(base, "_rules", dict(base._rules))

    @cgr.rule("needs-the-impossible")
    @dataclass(frozen=True, kw_only=True)
    class NeedsTheImpossible(cgr.Rule):
        """Needs what nobody has."""

        needs: ClassVar[frozenset[str]] = frozenset({"clairvoyance"})

    for _ in range(3):
        with pytest.raises(MissingCapability, match=r"needs 'clairvoyance', which llama\.cpp does not give"):
            await model.asolve(QUESTION, rule="needs-the-impossible", budget=32)
    assert (await model.asolve(QUESTION, rule="no-thinking")).thinking_tokens == 0


async def test_what_does_not_fit(model: Model) -> None:
    context = model.engine.info.context
    with pytest.raises(DoesNotFit, match="does not fit"):
        await model.asolve(QUESTION, budget=context + 1)
    with pytest.raises(DoesNotFit, match="The prompt has"):
        await model.asolve(QUESTION, budget=context - 8)


async def test_unknown_options_are_refused(model: Model) -> None:
    with pytest.raises(UnknownName, match="'treshold'"):
        await model.asolve(QUESTION, **{"treshold": 0.9})  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="question is empty"):
        await model.asolve(" ")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: cgr.solve(None), "A question is text or a list of messages, not None"),  # type: ignore[arg-type]
        (lambda: cgr.solve(["text"]), "A question is text or a list of messages"),  # type: ignore[arg-type]
        (lambda: cgr.solve("half a pair: \ud800"), "The question is not text in UTF-8"),
        (lambda: cgr.solve(QUESTION, budget="64"), "budget must be a whole number, not '64'"),  # type: ignore[arg-type]
        (lambda: cgr.solve(QUESTION, budget=64.5), "budget must be a whole number, not 64.5"),  # type: ignore[arg-type]
        (lambda: cgr.solve(QUESTION, budget=True), "budget must be a whole number, not True"),
        (lambda: cgr.solve(QUESTION, threshold="high"), "threshold must be a number, not 'high'"),  # type: ignore[arg-type]
        (lambda: cgr.solve(QUESTION, temperature=None), "temperature must be a number, not None"),  # type: ignore[arg-type]
        (lambda: cgr.solve(QUESTION, seed="x"), "seed must be a whole number"),  # type: ignore[arg-type]
        (lambda: cgr.solve(QUESTION, rule=None), "rule must be text"),  # type: ignore[arg-type]
        (lambda: cgr.solve(QUESTION, prefix="\udcff{"), "The prefix is not text in UTF-8"),
        (lambda: cgr.solve(QUESTION, parameters="x"), "parameters must be a mapping"),  # type: ignore[arg-type]
        (lambda: cgr.open_model(5), "model must be text, not 5"),  # type: ignore[arg-type]
        (lambda: cgr.open_model(sessions="2"), "sessions must be a whole number"),  # type: ignore[arg-type]
        (lambda: cgr.open_model(sessions=100_000), "100000 sessions"),
        (lambda: cgr.open_model(sessions=4096), "llama.cpp cannot think about 4096 questions at once"),
        (lambda: cgr.open_model(threads=100_000), "100000 threads"),
        (lambda: cgr.open_model(base_url=5), "base_url must be text or a list of texts"),  # type: ignore[arg-type]
    ],
)
def test_values_of_the_wrong_kind(call: Callable[[], object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        call()


def test_a_model_by_its_path() -> None:
    with cgr.open_model(find_model(None)) as model:  # type: ignore[arg-type]
        assert model.solve(QUESTION, rule="no-thinking").thinking_tokens == 0


def test_models_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "text.gguf").write_text("hello")
    with pytest.raises(NotAModel, match="not a GGUF"):
        cgr.open_model(str(tmp_path / "text.gguf"))
    with pytest.raises(NotAModel, match="cannot be read"):
        cgr.open_model(str(tmp_path))
    for name in ("nothing", str(tmp_path / "none.gguf"), "x" * 5000, "../nothing"):
        with pytest.raises(ModelNotFound, match="There is no model"):
            cgr.open_model(name)
    with pytest.raises(UsageError, match="0 sessions"):
        cgr.open_model(sessions=0)


def test_the_embedded_model_by_name() -> None:
    assert find_model(EMBEDDED) == find_model(None)
    assert find_model(None).stat().st_size < 25 * 2**20


def test_closing_twice_is_no_harm() -> None:
    model = cgr.open_model()
    model.solve(QUESTION, rule="no-thinking")
    model.close()
    model.close()


async def test_loading_a_model_does_not_stop_the_event_loop() -> None:
    """Other work goes on while the weights are loaded: many turns of the loop, none of them longer than the load."""
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    counting = asyncio.create_task(count())
    opened = cgr.open_model()
    assert turns == 0
    await opened.engine.connect()
    counting.cancel()
    assert turns > 100
    await opened.aclose()


async def test_two_who_connect_at_once_load_once() -> None:
    opened = cgr.open_model()
    await asyncio.gather(opened.engine.connect(), opened.engine.connect())
    assert isinstance(opened.engine, LlamaEngine)
    server = opened.engine._servers[0]
    await opened.engine.connect()
    assert opened.engine._servers[0] is server
    await opened.aclose()


async def test_an_engine_that_is_not_connected_says_so() -> None:
    with pytest.raises(EngineError, match="not connected"):
        assert cgr.open_model().engine.info


async def test_events_as_an_iterator(model: Model) -> None:
    stream = model.astream(QUESTION, budget=80, interval=24)
    events = [event async for event in stream]
    solution = await model.asolve(QUESTION, budget=80, interval=24)
    assert gist(stream.result) == gist(solution)
    assert "".join(event.text for event in events if isinstance(event, cgr.Thinking)) == solution.thinking
    assert tuple(e.probe.at for e in events if isinstance(e, cgr.Probed)) == tuple(probe.at for probe in solution.probes)
    assert isinstance(events[-1], cgr.Decided)


async def test_leaving_the_iterator_frees_the_session(model: Model) -> None:
    for _ in range(3):  # more often than there are sessions
        async with aclosing(model.astream(QUESTION, rule="fixed-budget").__aiter__()) as events:
            await anext(events)
    assert (await model.asolve(QUESTION, budget=32, wait=10)).thinking


async def test_waiting_for_a_session_is_bounded(model: Model) -> None:
    busy = [await model.engine.open(QUESTION, Sampling(), room=10) for _ in range(2)]
    with pytest.raises(Busy):
        await model.asolve(QUESTION, budget=32, wait=0.01)
    for session in busy:
        await session.close()
    assert (await model.asolve(QUESTION, budget=32, wait=10)).thinking


async def test_a_conversation(model: Model) -> None:
    """The instruction follows the last message of the user, and the answer is about that."""
    turns = (Message("user", OTHERS[0]), Message("assistant", "5"), Message("user", QUESTION))
    solution = await model.asolve(turns, budget=64)
    assert solution.question == QUESTION
    assert solution.thinking != (await model.asolve(QUESTION, budget=64)).thinking
    with pytest.raises(UsageError, match="from the assistant"):
        await model.asolve(turns[:2], budget=64)
    with pytest.raises(UsageError, match="question is empty"):
        await model.asolve((), budget=64)


@pytest.mark.parametrize(
    ("question", "known"),
    [
        (QUESTION, True),
        (f"  {OTHERS[1]}\n", True),
        ("What is 17 times 23?", False),
        ([Message("user", QUESTION)], True),
        ([Message("system", "Be brief."), Message("user", QUESTION)], False),
    ],
)
async def test_whether_the_model_knows_such_questions(model: Model, question: Conversation, known: bool) -> None:
    solution = await model.asolve(question, rule="no-thinking")
    assert (solution.in_domain, solution.summary()["in_domain"]) == (known, known)


async def test_other_models_cannot_tell_what_they_know(tmp_path: Path) -> None:
    copied = tmp_path / "mine.gguf"
    copied.write_bytes(find_model(None).read_bytes())
    async with cgr.open_model(str(copied)) as model:
        assert (await model.asolve(QUESTION, rule="no-thinking")).in_domain is None
    assert (await Model(scripted("so it is")).asolve(QUESTION, rule="no-thinking")).in_domain is None
    async with cgr.open_model(str(find_model(None))) as model:
        assert (await model.asolve("Why?", rule="no-thinking")).in_domain is False


def test_an_unknown_option_of_a_model() -> None:
    with pytest.raises(UsageError, match="no option of a model called 'session'") as caught:
        cgr.open_model(**{"session": 2})  # type: ignore[arg-type]
    assert "sessions" in caught.value.hint


def test_a_closed_model_is_refused() -> None:
    model = Model(scripted("a b </think>"))
    assert model.solve(QUESTION, budget=4, interval=2).thinking_tokens == 2
    model.close()
    for use in (lambda: model.solve(QUESTION), model.connect, model.__enter__, lambda: asyncio.run(model.asolve(QUESTION))):
        with pytest.raises(UsageError, match="This model is closed"):
            use()


async def test_connections_that_were_closed_are_opened_again() -> None:
    model = Model(scripted("a b </think>"))
    await model.aclose()
    assert (await model.asolve(QUESTION, budget=4, interval=2)).thinking_tokens == 2


def test_the_default_context_holds_the_default_budget() -> None:
    assert DEFAULT_CONTEXT == BUDGET + OPEN_ROOM
