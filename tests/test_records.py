"""Records come back from JSON as they went, and cannot be changed."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cgr.records import Decision, Probe, Question, Record, Token, Trace, visible, visible_line

shares = st.floats(0, 1)
counts = st.integers(0, 1 << 31)
words = st.text(max_size=12)
ids = st.lists(counts, max_size=5).map(tuple)
tokens = st.builds(Token, counts, words, st.floats(-50, 0), st.lists(st.tuples(counts, shares), max_size=2).map(tuple))
probes = st.builds(
    Probe,
    at=counts,
    answer=words,
    certainty=shares,
    closed=st.booleans(),
    probabilities=st.lists(shares, max_size=3).map(tuple),
    tokens=st.lists(tokens, max_size=3).map(tuple),
    suffix=words,
    suffix_ids=ids,
    bound=st.booleans(),
    entropy=st.none() | shares,
    decoded=counts,
    seconds=shares,
)
decisions = st.builds(
    Decision,
    stop_cause=st.sampled_from(["certainty", "end_of_thinking", "budget"]),
    answer=st.none() | words,
    certainty=shares,
    closed=st.booleans(),
    abstained=st.booleans(),
    thinking_tokens=counts,
    probes=st.lists(probes, max_size=3).map(tuple),
    final=st.none() | probes,
    eos=st.booleans(),
    forced=counts,
)
questions = st.builds(Question, words, words, st.none() | words, st.sampled_from(["integer", "number", "choice", "math"]))
traces = st.builds(
    Trace, words, counts, ids, words, st.sampled_from(["end_of_thinking", "budget"]), counts, st.booleans(), ids
)


@given(st.one_of(tokens, probes, decisions, questions, traces))
def test_json_round_trip(record: Record) -> None:
    assert type(record).from_json(record.to_json()) == record
    assert json.loads(record.to_json()).keys() == set(type(record).__slots__)


def test_an_unknown_field_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="Question has no field colour"):
        Question.from_dict({"id": "1", "text": "?", "colour": "red"})


def test_records_are_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Question("1", "?").text = "!"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("answer", "closed", "bound", "valid"),
    [("7", True, False, True), ("7", False, False, False), ("7", False, True, False), ("", True, False, False)],
)
def test_a_valid_probe_holds_a_whole_answer(answer: str, closed: bool, bound: bool, valid: bool) -> None:
    assert Probe(4, answer, 0.5, closed, bound=bound).valid == valid


def test_what_a_decision_cost() -> None:
    probe, final = Probe(4, "7", 0.5, True, decoded=3), Probe(8, "7", 0.5, True, decoded=2)
    ended = Decision("budget", "7", 0.5, True, False, 8, (probe, probe), final)
    assert (ended.probe_tokens, ended.answer_tokens) == (6, 2)
    stopped = Decision("certainty", "7", 0.5, True, False, 4, (probe,))
    assert (stopped.probe_tokens, stopped.answer_tokens) == (3, 0)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain é 中 🎉 θ\n\t", "plain é 中 🎉 θ\n\t"),
        ("\x1b[31mred\x1b[0m", "\\x1b[31mred\\x1b[0m"),
        ("bell\x07 back\x08 return\r delete\x7f", "bell\\x07 back\\x08 return\\r delete\\x7f"),
        ("csi\x9b31m", "csi\\x9b31m"),
        ("\u202eabc\u2066", "\\u202eabc\\u2066"),
        ("\ud800 \udcff", "\\ud800 \\udcff"),
        ("\u2028", "\\u2028"),
        ("[/x] [bold]", "[/x] [bold]"),
    ],
)
def test_unprintable_characters_become_visible(text: str, shown: str) -> None:
    assert visible(text) == shown
    assert visible_line(text) == shown.replace("\n", "\\n")


@pytest.mark.parametrize(
    "data",
    [
        [],
        None,
        {"at": "1", "answer": "7", "certainty": 0.5, "closed": True},
        {"at": 1, "answer": 7, "certainty": 0.5, "closed": True},
        {"at": 1, "answer": "7", "certainty": "0.5", "closed": True},
        {"at": True, "answer": "7", "certainty": 0.5, "closed": True},
        {"at": 1, "answer": "7", "certainty": 0.5, "closed": 1},
        {"at": 1, "answer": "7", "certainty": 0.5, "closed": True, "tokens": [5]},
    ],
)
def test_values_of_the_wrong_type_are_refused(data: Any) -> None:
    with pytest.raises(ValueError, match=r"is not|must be"):
        Probe.from_dict(data)


def test_a_whole_number_is_a_number() -> None:
    assert Probe.from_dict({"at": 1, "answer": "7", "certainty": 1, "closed": True}).certainty == 1


def test_a_literal_has_one_of_its_values() -> None:
    with pytest.raises(ValueError, match="'x' is not one of"):
        Question.from_dict({"id": "a", "text": "b", "format": "x"})
