"""The parts of the server that can be looked at alone."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from cgr.drive.answer import AnswerStyle, ends_sentence
from cgr.drive.driver import Driver, Outcome
from cgr.drive.events import Answering, Decided, Event, Thinking
from cgr.engines.base import Sampling
from cgr.engines.scripted import ScriptedEngine
from cgr.reason import Abstention
from cgr.records import Token
from cgr.rules import Rule, make_rule
from cgr.server.chat import AlignedLogprobs
from cgr.server.faults import ApiError, field_path, from_validation
from cgr.server.gate import Gate
from cgr.server.metrics import Metrics, missed_cache
from cgr.server.protocol import ChatBody
from cgr.server.proxy import _cleaned, _with_result
from cgr.server.shadow import noted_stop, shadowed
from cgr.server.tags import TagFilter
from tests.support import scripted, spec, sure_from

WORDS = "a b c d e. f g h i j. k l </think> The answer: 7. <eos>"


def test_tags_are_removed_wherever_the_pieces_are_cut() -> None:
    text = "a<think>b</think>c<thin d"
    for size in range(1, len(text)):
        tags = TagFilter(("<think>", "</think>"))
        pieces = [text[start : start + size] for start in range(0, len(text), size)]
        assert "".join(tags.feed(piece) for piece in pieces) + tags.flush() == "abc<thin d"


@given(st.text(alphabet="ab<>/think", max_size=40), st.integers(1, 5))
def test_text_without_tags_is_not_changed(text: str, size: int) -> None:
    tags = TagFilter(("<think>", "</think>"))
    pieces = [text[start : start + size] for start in range(0, len(text), size)]
    shown = "".join(tags.feed(piece) for piece in pieces) + tags.flush()
    assert shown == text or "<think>" in text or "</think>" in text
    assert "<think>" not in text or len(shown) < len(text)


async def test_logprobs_are_aligned_with_what_was_sent() -> None:
    engine = scripted("a b")
    tokens = [Token(number, text, math.log(0.5)) for number, text in enumerate(("The", " an", "", "swer", "."))]
    aligned = AlignedLogprobs(engine, 0)
    first = await aligned.feed("The a", tokens)
    second = await aligned.feed("nswe", ())
    third = await aligned.feed("r", ())
    assert [[one["token"] for one in part] for part in (first, second, third)] == [["The"], [" an"], ["", "swer"]]


def test_the_end_of_a_sentence() -> None:
    assert ends_sentence("so x=5 holds.")
    assert ends_sentence("really? ")
    assert ends_sentence("done\n")
    assert not ends_sentence("x=3.")  # may be a decimal point
    assert not ends_sentence("and then")
    assert not ends_sentence("")


async def _drive(engine: ScriptedEngine, style: AnswerStyle, rule: Rule, budget: int = 100) -> tuple[list[Event], Outcome]:
    events: list[Event] = []
    session = await engine.open("", Sampling())
    driver = Driver(engine, session, spec(), on_event=events.append, style=style)
    return events, await driver.run(rule, budget, Abstention(at_end_of_thinking="abstain"))


async def test_an_answer_follows_the_thinking() -> None:
    engine = scripted(WORDS, sure_from(4))
    events, outcome = await _drive(engine, AnswerStyle(), make_rule("cgr", interval=4))
    assert outcome.decision.stop_cause == "certainty"
    assert outcome.answer is not None
    assert outcome.answer.tokens > 0
    kinds = [type(event) for event in events]
    assert kinds.index(Decided) > max(number for number, kind in enumerate(kinds) if kind is Thinking)
    assert kinds.index(Answering) > kinds.index(Decided)


async def test_a_cut_waits_for_the_end_of_a_sentence_at_most_so_long() -> None:
    for wait, expected in ((0, 4), (1, 5), (3, 5)):
        _, outcome = await _drive(
            scripted(WORDS, sure_from(4)), AnswerStyle(sentence_wait=wait), make_rule("cgr", interval=4)
        )
        assert len(outcome.ids) == expected
    _, outcome = await _drive(scripted(WORDS, sure_from(6)), AnswerStyle(sentence_wait=2), make_rule("cgr", interval=6))
    assert len(outcome.ids) == 8


async def test_a_wrap_up_is_written_only_where_thinking_was_cut() -> None:
    style = AnswerStyle(wrap_up="So, finally:")
    events, _ = await _drive(scripted(WORDS, sure_from(4)), style, make_rule("cgr", interval=4))
    assert Thinking("So, finally:", forced=True) in events
    events, _ = await _drive(scripted(WORDS), style, make_rule("fixed-budget"))
    assert Thinking("So, finally:", forced=True) not in events


async def test_without_probes_the_model_thinks_to_its_end() -> None:
    engine = scripted(WORDS, sure_from(1))
    _, outcome = await _drive(engine, AnswerStyle(probed=False), make_rule("cgr", interval=2))
    assert not any(entry.startswith("probe") for entry in engine.log)
    assert len(outcome.ids) == 12
    _, outcome = await _drive(scripted(WORDS), AnswerStyle(probed=False), make_rule("cgr"), budget=5)
    assert outcome.decision.stop_cause == "budget"


async def test_an_abstention_has_a_text_of_its_own() -> None:
    events, outcome = await _drive(scripted(WORDS), AnswerStyle(abstention="I do not know."), make_rule("cgr", interval=4))
    assert outcome.decision.abstained
    assert events[-1] == Answering("I do not know.")


async def test_a_shadowed_rule_stops_nothing_and_notes_where_it_would_have() -> None:
    rule = shadowed(make_rule("cgr", interval=4))
    _, outcome = await _drive(scripted(WORDS, sure_from(8)), AnswerStyle(), rule)
    assert outcome.decision.stop_cause == "end_of_thinking"
    assert len(outcome.decision.probes) == 3
    noted = noted_stop(rule)
    assert noted is not None
    assert noted.at == 8
    assert noted_stop(shadowed(make_rule("cgr", interval=4))) is None
    assert rule.name == "cgr"


async def test_a_gate_is_fair_bounded_and_timed() -> None:
    gate = Gate(1, 1, 0.05, Metrics())
    order: list[str] = []

    async def enter(name: str, hold: asyncio.Event) -> None:
        async with gate.place():
            order.append(name)
            await hold.wait()

    hold = asyncio.Event()
    first = asyncio.create_task(enter("first", hold))
    await asyncio.sleep(0)
    second = asyncio.create_task(enter("second", hold))
    await asyncio.sleep(0)
    with pytest.raises(ApiError) as full:
        async with gate.place():
            pass
    assert full.value.status == 429
    with pytest.raises(ApiError) as late:
        await second
    assert late.value.status == 408
    hold.set()
    await first
    async with gate.place():
        assert order == ["first"]


def test_paths_of_fields() -> None:
    assert field_path(("messages", 0, "content", "list[ContentPart]", 1, "text")) == "messages[0].content[1].text"
    assert field_path(("cgr", "CgrOptions", "threshold")) == "cgr.threshold"


@pytest.mark.parametrize(
    ("fields", "said"),
    [({"stop": ["a"] * 17}, "stop: list should have at most 16"), ({"stop": 1}, "stop: input should be a valid string")],
)
def test_an_error_is_about_the_kind_of_value_that_was_given(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError) as caught:
        ChatBody.model_validate({"messages": [{"role": "user", "content": "x"}], **fields})
    assert from_validation(caught.value).message.startswith(said)


def test_a_body_is_changed_only_where_it_must_be() -> None:
    same = b'{ "model":"m",  "x": 1.50, "text": "\\u00e9"}'
    assert _cleaned(same, "m") is same
    assert _cleaned(b'{"model": "m:plain", "cgr": false, "x": "\xc3\xa9"}', "m") == '{"model": "m", "x": "é"}'.encode()
    assert _cleaned(b'{"text": "the \\"cgr\\" field"}', "m") == b'{"text": "the \\"cgr\\" field"}'


def test_the_result_is_put_into_the_last_chunk_only() -> None:
    lines = b'data: {"a":{"finish_reason":null}}\n\ndata: {"a":{"finish_reason":"stop"}}\n\ndata: [DONE]\n\n'
    expected = lines.replace(b'data: {"a":{"finish_reason":"stop"', b'data: {"cgr":1,"a":{"finish_reason":"stop"')
    assert _with_result(lines, b'"cgr":1,', "/v1/chat/completions") == expected


@pytest.mark.parametrize("space", [b"", b" "])
def test_the_result_is_put_into_the_last_event_of_other_apis(space: bytes) -> None:
    delta = b'event: x\ndata: {"type":"x","delta":"\\"type\\":\\"response.completed\\""}\n\n'
    done = b'data: {"type":' + space + b'"response.completed","response":' + space + b'{"id":"r","response":{"a":1}}}\n\n'
    expected = done.replace(b'{"id"', b'{"cgr":1,"id"')
    assert _with_result(delta + done, b'"cgr":1,', "/v1/responses") == delta + expected
    last = b'data: {"type":' + space + b'"message_delta","delta":{"stop_reason":"end_turn"}}\n\n'
    assert _with_result(last, b'"cgr":1,', "/v1/messages") == last.replace(b"data: {", b'data: {"cgr":1,')


@dataclass(frozen=True)
class _Cost:
    cached: int
    prefilled: int


@pytest.mark.parametrize(
    ("cached", "prefilled", "missed"), [(0, 0, False), (1000, 20, False), (0, 1000, True), (0, 100, False)]
)
def test_a_probe_that_missed_the_cache(cached: int, prefilled: int, missed: bool) -> None:
    assert missed_cache(_Cost(cached, prefilled)) is missed  # type: ignore[arg-type]
