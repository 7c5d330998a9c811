"""Text from a token stream: pieces join to the whole text, no piece has half a character, stop strings end it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cgr.engines.hf.engine import TransformersEngine
from cgr.engines.text.detokenize import HFTokenizer, StopStrings

TEXTS = ("plain", "naïve – 日本語 🙂!", " a  b\n\n c")


class Bytes:
    """A tokenizer whose tokens are the bytes of UTF-8."""

    bos_token = eos_token = chat_template = None
    added_tokens_decoder: ClassVar[dict[int, str]] = {}

    def __call__(self, text: str, *, add_special_tokens: bool) -> dict[str, list[int]]:
        return {"input_ids": list(text.encode())}

    def decode(self, ids: Sequence[int], **options: Any) -> str:
        return bytes(ids).decode(errors="replace")


def assert_joins(tokenizer: HFTokenizer, text: str) -> None:
    ids = tokenizer.encode(text)
    detokenizer = tokenizer.detokenizer(tokenizer.encode("x="))
    pieces = [detokenizer.feed(token) for token in ids]
    assert "".join(pieces) == tokenizer.decode(ids) == text
    assert not any("\ufffd" in piece for piece in pieces)
    assert detokenizer.flush() == ""


@pytest.mark.parametrize("text", TEXTS)
def test_pieces_join_to_the_text(text: str) -> None:
    assert_joins(HFTokenizer(Bytes()), text)


def test_an_unfinished_character_is_flushed() -> None:
    tokenizer = HFTokenizer(Bytes())
    detokenizer = tokenizer.detokenizer()
    ids = tokenizer.encode("a🙂")[:-1]
    assert [detokenizer.feed(token) for token in ids] == ["a", "", "", ""]
    assert "a" + detokenizer.flush() == tokenizer.decode(ids)
    assert detokenizer.flush() == ""


@pytest.mark.heavy
@pytest.mark.parametrize("text", TEXTS)
def test_pieces_of_a_real_tokenizer(text: str, connected_once: TransformersEngine) -> None:
    assert_joins(connected_once.loaded.tokenizer, text)


@pytest.mark.parametrize(
    ("stops", "pieces", "passed", "found"),
    [
        ((), ["a", "b"], ["a", "b"], False),
        (("",), ["a", "b"], ["a", "b"], False),
        (("END",), ["aE", "N", "Db"], ["a", "", ""], True),  # across pieces; the rest is dropped
        (("END",), ["aE", "N", "b"], ["a", "", "ENb"], False),  # held back, then passed on
        (("aab",), ["aa", "ab"], ["", "a"], True),  # the stop string begins later than first assumed
        (("xyz", "y"), ["axy"], ["ax"], True),  # the one that is complete first
        (("b", "abc"), ["abc"], [""], True),  # the one that begins first
        (("\n\n",), ["1\n", "2\n", "\n3"], ["1", "\n2", ""], True),
    ],
)
def test_stop_strings_in_pieces(stops: tuple[str, ...], pieces: list[str], passed: list[str], found: bool) -> None:
    filter_ = StopStrings(stops)
    assert [filter_.feed(piece) for piece in pieces] == passed
    assert filter_.found == found


def test_what_was_held_back_is_not_lost() -> None:
    stops = StopStrings(("END",))
    assert stops.feed("1 EN") == "1 "
    assert stops.flush() == "EN"
    assert stops.flush() == ""


@given(st.lists(st.text("ab\n", max_size=3), max_size=12), st.text("ab\n", min_size=1, max_size=4))
def test_one_stop_string_cuts_where_it_first_occurs(pieces: list[str], stop: str) -> None:
    stops, passed = StopStrings((stop,)), ""
    for piece in pieces:
        passed += stops.feed(piece)
        if stops.found:
            break
    text = "".join(pieces)
    assert stops.found == (stop in text)
    assert passed + stops.flush() == text.partition(stop)[0]
