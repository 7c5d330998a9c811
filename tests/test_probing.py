"""The answer span: by character, whatever the tokens; and the spec that asks for it."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cgr.errors import UnknownName, UsageError
from cgr.probing import (
    INTEGER_TOKENS,
    MAX_TOKENS,
    PREFIX,
    Asks,
    ProbeSpec,
    Span,
    answer_span,
    entropy_bounds,
    open_braces,
    opens_brace,
    option_letters,
)
from cgr.records import Probe, Token
from tests.support import spec, tokens_of

SHAPES: list[tuple[str, list[tuple[str, float]], str, list[float], bool]] = [
    ("a digit and a brace", [("5", 0.8), ("}", 0.1)], "5", [0.8], True),
    ("glued in front", [("5}", 0.8)], "5", [0.8], True),
    ("glued behind", [("12", 0.8), ("}$", 0.1)], "12", [0.8], True),
    ("brace, stop, new line", [("12", 0.8), ("}.\n", 0.1)], "12", [0.8], True),
    ("brace and paragraph", [("12", 0.8), ("}\n\n", 0.1)], "12", [0.8], True),
    ("content, brace and more", [("1", 0.9), ("2}$", 0.7), ("x", 0.1)], "12", [0.9, 0.7], True),
    ("what follows the brace is not read", [("5", 0.8), ("}", 0.1), ("6", 0.01), ("}", 0.01)], "5", [0.8], True),
    ("three digits", [("1", 0.9), ("2", 0.8), ("3", 0.7), ("}", 0.1)], "123", [0.9, 0.8, 0.7], True),
    ("empty", [("}", 0.9)], "", [], True),
    ("empty, glued", [("}.\n", 0.9)], "", [], True),
    ("only white space", [(" ", 0.9), ("}", 0.9)], "", [], True),
    ("nothing decoded", [], "", [], False),
    ("unclosed", [("1", 0.9), ("2", 0.8)], "12", [0.9, 0.8], False),
    (
        "a fraction",
        [("\\frac", 0.9), ("{", 0.8), ("1", 0.7), ("}{", 0.6), ("2", 0.5), ("}}", 0.4)],
        "\\frac{1}{2}",
        [0.9, 0.8, 0.7, 0.6, 0.5, 0.4],
        True,
    ),
    ("a fraction, its last brace apart", [("\\frac{1}{2}", 0.9), ("}", 0.1)], "\\frac{1}{2}", [0.9], True),
    ("a fraction that is not closed", [("\\frac{1}{2", 0.9), ("}", 0.8)], "\\frac{1}{2}", [0.9, 0.8], False),
    ("white space around", [(" ", 0.2), ("4", 0.9), (" ", 0.3), ("}", 0.1)], "4", [0.9], True),
    ("white space inside a token", [(" 4 ", 0.9), ("}", 0.1)], "4", [0.9], True),
    ("white space before the brace", [("4", 0.9), (" }", 0.1)], "4", [0.9], True),
    ("half a character", [("4", 0.9), ("", 0.6), ("°", 0.7), ("}", 0.1)], "4°", [0.9, 0.6, 0.7], True),
    ("half a character and no answer", [("", 0.6), ("}", 0.1)], "", [], True),
    (
        "braces in braces",
        [("x_{a_{1}}", 0.9), ("+{{", 0.8), ("}}", 0.7), ("}", 0.1)],
        "x_{a_{1}}+{{}}",
        [0.9, 0.8, 0.7],
        True,
    ),
]


@pytest.mark.parametrize(
    ("pieces", "answer", "counted", "closed"), [row[1:] for row in SHAPES], ids=[row[0] for row in SHAPES]
)
def test_shapes(pieces: list[tuple[str, float]], answer: str, counted: list[float], closed: bool) -> None:
    span = answer_span(tokens_of(*pieces))
    assert (span.answer, span.closed) == (answer, closed)
    assert span.probabilities == pytest.approx(counted)


UNOPENED: list[tuple[str, list[tuple[str, float]], str, list[float], bool]] = [
    ("the brace apart", [("{", 0.2), ("5", 0.8), ("}", 0.1)], "5", [0.8], True),
    ("the brace glued", [("{5", 0.8), ("}", 0.1)], "5", [0.8], True),
    ("all in one", [("{5}$", 0.8)], "5", [0.8], True),
    ("white space first", [(" ", 0.2), ("{", 0.2), ("5}", 0.8)], "5", [0.8], True),
    ("never opened", [("5", 0.8), ("}", 0.1)], "", [], False),
    ("nested", [("{", 0.2), ("x^{2}", 0.8), ("}", 0.1)], "x^{2}", [0.8], True),
]


@pytest.mark.parametrize(
    ("pieces", "answer", "counted", "closed"), [row[1:] for row in UNOPENED], ids=[row[0] for row in UNOPENED]
)
def test_a_prefix_that_ends_in_boxed(
    pieces: list[tuple[str, float]], answer: str, counted: list[float], closed: bool
) -> None:
    """The first brace that is decoded opens the answer."""
    span = ProbeSpec(prefix="**Final Answer**\n\\boxed").span(tokens_of(*pieces))
    assert (span.answer, span.closed) == (answer, closed)
    assert span.probabilities == pytest.approx(counted)


texts = st.text(alphabet="{}{}0123 \nax\\$.é", max_size=24)


@st.composite
def cut_texts(draw: st.DrawFn) -> tuple[str, list[str]]:
    """A text, and the same text cut into tokens at random places."""
    text = draw(texts)
    cuts = sorted(draw(st.sets(st.integers(1, max(len(text) - 1, 1)))) if text else set())
    edges = [0, *(cut for cut in cuts if cut < len(text)), len(text)]
    return text, [text[a:b] for a, b in pairwise(edges)] if text else []


@given(cut_texts(), st.booleans())
def test_the_span_does_not_depend_on_the_cuts(cut: tuple[str, list[str]], opened: bool) -> None:
    text, pieces = cut
    by_pieces = answer_span(tokens_of(*pieces), opened)
    by_characters = answer_span(tokens_of(*text), opened)
    whole = answer_span(tokens_of(text), opened)
    assert (by_pieces.answer, by_pieces.closed) == (by_characters.answer, by_characters.closed)
    assert (whole.answer, whole.closed) == (by_characters.answer, by_characters.closed)


def inside(text: str) -> tuple[int, bool]:
    """Where the answer in a text ends: the first place where more braces closed than opened."""
    for end in range(len(text)):
        if text[: end + 1].count("}") > text[: end + 1].count("{"):
            return end, True
    return len(text), False


@given(texts)
def test_the_first_unbalanced_brace_closes(text: str) -> None:
    end, closed = inside(text)
    span = answer_span(tokens_of(*text))
    assert (span.answer, span.closed) == (text[:end].strip(), closed)
    if closed:
        assert span.answer.count("{") == span.answer.count("}")


@given(cut_texts())
def test_tokens_count_for_their_content_inside_the_answer(cut: tuple[str, list[str]]) -> None:
    text, pieces = cut
    end, _ = inside(text)
    starts = [sum(map(len, pieces[:number])) for number in range(len(pieces))]
    holds = [bool(piece[: max(end - start, 0)].strip()) for start, piece in zip(starts, pieces, strict=True)]
    tokens = [Token(number, piece, math.log((number + 1) / 100)) for number, piece in enumerate(pieces)]
    expected = [(number + 1) / 100 for number, counts in enumerate(holds) if counts]
    assert answer_span(tokens).probabilities == pytest.approx(expected)


@given(cut_texts(), cut_texts())
def test_nothing_after_the_brace_is_read(before: tuple[str, list[str]], after: tuple[str, list[str]]) -> None:
    tokens = tokens_of(*before[1], "}" * (before[0].count("{") + 1))
    span = answer_span(tokens)
    assert span.closed
    assert answer_span((*tokens, *tokens_of(*after[1]))) == span


@pytest.mark.parametrize(
    ("text", "count"),
    [("", 0), ("a", 0), ("{", 1), ("{a b", 1), ("{a{b", 2), ("{a{b}c", 1), ("{}", 0), ("}", 0), ("}}{a", 1), ("{}}{", 1)],
)
def test_braces_that_a_text_leaves_open(text: str, count: int) -> None:
    assert open_braces(text) == count


@given(texts)
def test_open_braces_are_never_negative(text: str) -> None:
    assert open_braces(text) >= 0
    assert open_braces(text + "{") == open_braces(text) + 1
    assert open_braces(text + "}") == max(open_braces(text) - 1, 0)


@pytest.mark.parametrize("prefix", [PREFIX, "\\boxed", "\n**Final Answer**\n\\boxed ", "{", "so {a} = {"])
def test_prefixes_that_can_be_closed(prefix: str) -> None:
    assert opens_brace(prefix)
    assert ProbeSpec(prefix=prefix).prefix == prefix


@pytest.mark.parametrize("prefix", ["", "Final Answer: ", "\\boxed{}", "\\boxed}", "boxed"])
def test_prefixes_that_cannot(prefix: str) -> None:
    with pytest.raises(UsageError, match="could never be closed") as caught:
        ProbeSpec(prefix=prefix)
    assert "\\boxed{" in caught.value.hint


def test_the_defaults() -> None:
    assert PREFIX == "Final Answer: \\boxed{"
    assert (INTEGER_TOKENS, MAX_TOKENS) == (4, 32)
    assert ProbeSpec() == ProbeSpec(PREFIX, 32, "min", "never")


@pytest.mark.parametrize(
    ("changes", "error", "message", "hint"),
    [
        (
            {"max_answer_tokens": 0},
            UsageError,
            "An answer needs at least one token.",
            "Use --max-answer-tokens 1 or more.",
        ),
        (
            {"aggregate": "median"},
            UnknownName,
            "There is no aggregate called 'median'.",
            "Did you mean 'mean'? Known: geometric-mean, mean, min, options, product.",
        ),
        (
            {"close_think": "sometimes"},
            UnknownName,
            "There is no close-think policy called 'sometimes'.",
            "Known: always, auto, never.",
        ),
        (
            {"reads": "minds"},
            UnknownName,
            "There is no kind of reading called 'minds'.",
            "Known: answer, entropy, text.",
        ),
        (
            {"prefix": "So: "},
            UsageError,
            "The answer after the prefix 'So: ' could never be closed: it leaves no brace open.",
            "End the prefix with an open brace, as in 'Final Answer: \\boxed{'.",
        ),
    ],
)
def test_what_a_spec_refuses(changes: dict[str, Any], error: type[UsageError], message: str, hint: str) -> None:
    with pytest.raises(error) as caught:
        ProbeSpec(**changes)
    assert (caught.value.message, caught.value.hint) == (message, hint)


def test_one_token_is_enough_for_an_answer() -> None:
    assert ProbeSpec(max_answer_tokens=1).limit == 1


@pytest.mark.parametrize(
    ("policy", "at_a_probe", "at_the_end"), [("never", False, False), ("always", True, True), ("auto", False, True)]
)
def test_close_think(policy: str, at_a_probe: bool, at_the_end: bool) -> None:
    asked = spec(close_think=policy)
    assert (asked.closes(final=False), asked.closes(final=True)) == (at_a_probe, at_the_end)


def test_decoding_is_done_when_closed_or_full() -> None:
    done = spec(max_answer_tokens=3).done()
    assert not done(tokens_of("1"))
    assert done(tokens_of("1", "}"))
    assert not done(tokens_of("1", "2"))
    assert done(tokens_of("1", "2", "3"))


@pytest.mark.parametrize(
    ("aggregate", "cuts"), [("min", True), ("product", True), ("mean", False), ("geometric-mean", False)]
)
def test_a_low_token_is_enough_where_certainty_can_only_fall(aggregate: str, cuts: bool) -> None:
    low = tokens_of(("1", 0.4))
    assert spec(aggregate=aggregate).done(0.9)(low) == cuts
    assert not spec(aggregate=aggregate).done(None)(low)
    assert not spec(aggregate=aggregate).done(0.3)(low)
    assert not spec(aggregate=aggregate).done(0.9)(tokens_of((" ", 0.4)))


def test_reading_a_probe() -> None:
    tokens = (Token(1, "4", 0.0), Token(2, "2", -0.25), Token(3, "}", -1.0))
    probe = spec(prefix="Say: {").read(8, tokens)
    assert probe == Probe(
        8, "42", math.exp(-0.25), True, (1.0, math.exp(-0.25)), tokens, suffix="Say: {", bound=False, decoded=3
    )
    assert probe.valid


@pytest.mark.parametrize(
    ("pieces", "ended", "bound", "decoded"),
    [
        (["4"], False, True, 1),  # cut short
        (["4"], True, False, 2),  # the model ended its turn instead of closing; that token was decoded too
        (["4", "2", "1", "7"], False, False, 4),  # L is reached
    ],
)
def test_an_answer_that_did_not_close(pieces: list[str], ended: bool, bound: bool, decoded: int) -> None:
    probe = spec().read(8, tokens_of(*pieces), ended)
    assert (probe.closed, probe.bound, probe.decoded, probe.valid) == (False, bound, decoded, False)


def test_a_span_is_a_value() -> None:
    assert answer_span([Token(1, "5}", 0.0)]) == Span("5", (1.0,), True)


def tops(*chances: float) -> tuple[tuple[int, float], ...]:
    return tuple((number, math.log(chance)) for number, chance in enumerate(chances))


@pytest.mark.parametrize(
    ("chances", "vocabulary", "low", "high"),
    [
        ((0.5, 0.5), None, 1.0, 1.0),
        ((1.0,), None, 0.0, 0.0),
        ((0.25,) * 4, 4, 2.0, 2.0),
        ((0.5, 0.25), None, 1.5, math.inf),
        ((0.5, 0.25), 4, 1.5, 1.75),
        ((0.5, 0.25), 3, 1.5, 1.5),
        ((0.5, 0.25), 2, 1.0, 1.0),  # the whole vocabulary is known: no rest, though they do not add up to 1
        ((0.5, 0.25), 1, 1.0, 1.0),
    ],
)
def test_the_entropy_lies_between_bounds(
    chances: tuple[float, ...], vocabulary: int | None, low: float, high: float
) -> None:
    """What was not seen is one token at the least, and spread over the rest of the vocabulary at the most."""
    assert list(entropy_bounds(tops(*chances), vocabulary)) == pytest.approx([low, high])


def test_a_token_that_cannot_follow_has_no_entropy() -> None:
    assert entropy_bounds([(0, 0.0), (1, -math.inf), (2, -1000.0)]) == (0.0, 0.0)


@given(st.lists(st.floats(0.01, 1.0), min_size=2, max_size=12), st.integers(1, 12))
def test_the_bounds_hold_the_true_entropy(weights: list[float], seen: int) -> None:
    chances = sorted((weight / sum(weights) for weight in weights), reverse=True)
    true = -sum(chance * math.log2(chance) for chance in chances)
    low, high = entropy_bounds(tops(*chances[:seen]), len(chances))
    assert low - 1e-9 <= true <= high + 1e-9


def test_a_probe_for_the_entropy_alone_decodes_one_token_and_holds_no_answer() -> None:
    spec = ProbeSpec("\n</think>\n", reads="entropy")
    token = Token(3, "So", math.log(0.5), tops(0.5, 0.25, 0.1, 0.05, 0.05, 0.04, 0.01))
    assert (spec.limit, spec.done()([token])) == (1, True)
    assert spec.top > 100
    assert spec.span(tokens_of("5", "}")) == Span("", (), False)
    probe = spec.read(9, [token])
    kept = Token(3, "So", math.log(0.5), token.top[:5])
    assert replace(probe, probabilities=(), entropy=None) == Probe(
        9, "", 0.0, False, tokens=(kept,), suffix="\n</think>\n", decoded=1
    )
    assert probe.entropy == pytest.approx(entropy_bounds(token.top)[0])
    assert list(probe.probabilities) == pytest.approx([1.0])
    assert spec.read(9, [Token(3, "So", 0.0)]).entropy is None


@pytest.mark.parametrize(
    ("chances", "entropy", "share"),
    [
        ((0.5, 0.25), 1.5, 0.75),  # the rest counts as one token
        ((1.0, 2**-10), 10 / 1024, 1.0),  # more than 1 in all can only be rounding
    ],
)
def test_an_entropy_is_the_lower_bound_with_the_share_that_was_seen(
    chances: tuple[float, ...], entropy: float, share: float
) -> None:
    probe = ProbeSpec("\n</think>\n", reads="entropy").read(9, [Token(3, "So", math.log(0.5), tops(*chances))])
    assert probe.entropy == pytest.approx(entropy)
    assert probe.probabilities == pytest.approx((share,))


@pytest.mark.parametrize(
    ("changes", "pieces", "place"),
    [
        ({"options": ("A", "B")}, ["B", "}"], 0),
        ({"options": ("A", "B")}, [" ", "b}.\n"], 1),  # in one token with what is around it, in lower case
        ({"options": ("A", "B")}, ["(", "B", ")", "}"], 1),
        ({"options": ("A", "B")}, ["(B)", "}"], 0),
        ({"options": ("A", "B")}, ["B:", " ", "B", "}"], 0),  # the first of two
        ({"options": ("A", "B")}, ["7", "}"], None),  # an answer that is no letter
        ({"options": ("A", "B")}, ["Both", "}"], None),
        ({"options": ("A", "B")}, [], None),
        ({"options": ("A", "B"), "reads": "text"}, ["A", "}", "B"], 0),
        ({"options": ("A", "B"), "reads": "entropy"}, ["A", "}"], None),  # there is no answer
        ({}, ["B", "}"], None),  # a question without options
    ],
)
def test_the_token_with_the_letter_of_the_answer(changes: dict[str, Any], pieces: list[str], place: int | None) -> None:
    tokens = tokens_of(*pieces)
    assert spec(**changes).letter_token(tokens) == (None if place is None else tokens[place])


def test_a_question_can_have_as_many_options_as_there_are_letters() -> None:
    letters = tuple("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
    assert option_letters("\n".join(f"{letter}) {ord(letter)}" for letter in letters)) == letters


def test_a_probe_for_the_text_goes_on_behind_the_answer() -> None:
    spec = ProbeSpec(max_answer_tokens=4, reads="text")
    tokens = tokens_of("7", "}", " but", " no")
    assert [spec.done(0.99)(tokens[:count]) for count in range(1, 5)] == [False, False, False, True]
    probe = spec.read(9, tokens)
    assert (probe.answer, probe.closed, probe.text, probe.decoded) == ("7", True, "7} but no", 4)
    assert not probe.ended
    assert spec.read(9, tokens[:2], ended=True).ended


def test_a_way_of_ones_own_goes_over_the_settings() -> None:
    settings = ProbeSpec("Say: {", 7, "product", "auto")
    assert Asks().over(settings) == settings
    assert Asks(max_answer_tokens=3, reads="text").over(settings) == ProbeSpec("Say: {", 3, "product", "auto", "text")
