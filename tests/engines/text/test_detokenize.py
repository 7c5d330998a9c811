"""Text from a token stream: pieces join to the whole text, and no piece has half a character."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from cgr.engines.hf.engine import TransformersEngine
from cgr.engines.text.detokenize import HFTokenizer

TEXTS = ("plain", "naïve – 日本語 🙂!", " a  b\n\n c")


class Bytes:
    """A tokenizer whose tokens are the bytes of UTF-8."""

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
    assert_joins(connected_once.connected.model.tokenizer, text)
