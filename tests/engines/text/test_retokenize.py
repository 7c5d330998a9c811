"""Growing tokens of one model as tokens of another: always those of the whole text, and settled ones stay."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cgr.engines.llama.engine import LlamaEngine
from cgr.engines.scripted import ScriptedEngine
from cgr.engines.text.retokenize import MARGIN, GrowingText, GrowingTokens

Split = Callable[[str], list[str]]
WORDS = ["So", "x", "Wait, let me check.", "864*8=6400+480", "7009", "naïve", "½", "😀", "check", "a" * 40, ".", "let me"]
GLUE = [" ", " ", " ", "\n", "\n\n", "  ", "", ", ", "\t"]


class Splitting(ScriptedEngine):
    """Tokenises by a function, and counts the characters that it was given."""

    def __init__(self, split: Split) -> None:
        super().__init__((), lambda at, suffix: ())
        self.split, self.characters = split, 0

    async def encode(self, text: str) -> tuple[int, ...]:
        self.characters += len(text)
        return tuple(map(self.id_of, self.split(text)))


class Bytes(ScriptedEngine):
    """A token a byte: most characters beyond ASCII are cut in two somewhere."""

    async def decode(self, ids: Sequence[int]) -> str:
        return bytes(ids).decode("utf-8", errors="replace")


def words(text: str) -> list[str]:
    """As GPT-2's: words with the space before them."""
    return re.findall(r" ?\w+| ?[^\s\w]+|\s+(?!\S)|\s+", text)


def phrases(text: str) -> list[str]:
    """Characters, but a few phrases are one token, spaces and all."""
    return re.findall(r"Wait, let me check\.|let me|.", text, re.DOTALL)


def dummy(text: str) -> list[str]:
    """As SentencePiece: a text on its own begins with a space that it does not have."""
    return words(f" {text}") if text else []


def punctuation(text: str) -> list[str]:
    """As Llama 3's: new lines stick to the punctuation before them, digits come in threes."""
    return re.findall(r"\d{1,3}| ?[^\W\d]+| ?[^\s\w]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+", text)


def sayings(seed: int, count: int) -> list[str]:
    """Pieces of a text, cut anywhere."""
    rng = random.Random(seed)
    text = "".join(rng.choice(WORDS) + rng.choice(GLUE) for _ in range(count))
    cuts = sorted(rng.sample(range(len(text) + 1), 8))
    return [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]


@pytest.mark.parametrize("split", [words, phrases, dummy, punctuation, list], ids=lambda split: split.__name__)
@settings(max_examples=25)
@given(seed=st.integers(0, 10**6))
async def test_it_is_the_encoding_of_the_whole_text(split: Split, seed: int) -> None:
    engine = Splitting(split)
    retelling, text = GrowingTokens(engine), ""
    kept: tuple[int, ...] = ()
    for more in sayings(seed, 120):
        text += more
        await retelling.grow(more)
        assert retelling.ids == await engine.encode(text)
        assert retelling.ids[: len(kept)] == kept
        kept = retelling.ids[: retelling.settled]


@pytest.mark.parametrize("split", [words, phrases, dummy, punctuation], ids=lambda split: split.__name__)
async def test_the_beginning_is_not_read_again(split: Split) -> None:
    engine = Splitting(split)
    retelling, text = GrowingTokens(engine), ""
    rng = random.Random(0)
    for _ in range(200):
        more = "".join(f"{rng.choice(WORDS)} " for _ in range(40))
        text += more
        await retelling.grow(more)
    assert len(retelling.ids) - retelling.settled < MARGIN * 2
    assert engine.characters < 20 * len(text)  # from the start each time: more than 100


@settings(max_examples=5)
@given(seed=st.integers(0, 10**6))
async def test_on_a_real_tokenizer(loaded: object, seed: int) -> None:
    engine: LlamaEngine = loaded.engine  # type: ignore[attr-defined]
    retelling, text = GrowingTokens(engine), ""
    try:
        for more in sayings(seed, 60):
            text += more
            await retelling.grow(more)
            assert retelling.ids == (await engine.encode(text) if text else ())
    finally:
        await engine.close()


@given(st.text(max_size=60), st.lists(st.integers(0, 240), max_size=6))
async def test_characters_are_told_whole(text: str, cuts: list[int]) -> None:
    data = text.encode("utf-8", errors="replace")
    telling, told, places = GrowingText(Bytes((), lambda at, suffix: ())), "", sorted(min(cut, len(data)) for cut in cuts)
    for start, end in zip([0, *places], [*places, len(data)], strict=True):
        told += await telling.grow(list(data[start:end]))
        whole = data[:end].decode("utf-8", errors="replace")
        assert told == whole.rstrip("\ufffd") or whole.startswith(told)
    expected = data.decode("utf-8", errors="replace")
    assert told == expected.rstrip("\ufffd")


async def test_half_a_character_waits_for_the_other() -> None:
    telling = GrowingText(Bytes((), lambda at, suffix: ()))
    data = "naïve 😀!".encode()
    assert [await telling.grow([byte]) for byte in data] == ["n", "a", "", "ï", "v", "e", " ", "", "", "", "😀", "!"]
