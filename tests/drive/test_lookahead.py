"""Thinking up to the next mark: what is returned, what is read beyond it, and the text that is passed on."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cgr.drive.lookahead import Lookahead
from cgr.engines.base import Sampling, Stretch
from cgr.engines.scripted import ScriptedEngine, ScriptedSession
from cgr.rules.marks import Place, marks
from tests.support import sure_from

END, EOS = "</think>", "<eos>"


class Joined(ScriptedEngine):
    """The texts of its tokens are joined without spaces."""

    async def decode(self, ids: Sequence[int]) -> str:
        words = list(self._words)
        return "".join(words[one] for one in ids)


class Ahead:
    """A lookahead on a script, and the texts that it passes on."""

    def __init__(
        self, words: Sequence[str], known: Sequence[int] | None = None, tops: Callable[[int], float] | None = None
    ) -> None:
        self.engine, self.texts = Joined(words, sure_from(1), tops=tops), list[str]()
        session = ScriptedSession(self.engine, Sampling(logprobs=tops is not None))
        self.lookahead = Lookahead(self.engine, session, known)

    async def think(self, tokens: int, until: Place | None = None, *, ban_end: bool = False) -> tuple[Stretch, bool]:
        """The text that is passed on must be that of the tokens."""
        self.texts.clear()
        stretch, marked = await self.lookahead.think(tokens, until, ban_end=ban_end, on_text=self.texts.append)
        assert "".join(self.texts) == await self.engine.decode(stretch.ids)
        return stretch, marked

    def stretch(self, *words: str, ended: bool = False, eos: bool = False) -> Stretch:
        return Stretch(tuple(map(self.engine.id_of, words)), ended, eos)

    @property
    def state(self) -> tuple[int, int]:
        """The position, and how many tokens were read beyond it."""
        return self.lookahead.at, self.lookahead.rewind


async def test_a_mark_is_known_once_the_text_after_it_was_read() -> None:
    ahead = Ahead(["a", " b", " Wait", ",", " c", " Wait", "er", " d", END])
    assert ahead.state == (0, 0)
    assert await ahead.think(20, "wait") == (ahead.stretch("a", " b"), True)
    assert ahead.state == (2, 2)
    last = ahead.stretch(" Wait", ",", " c", " Wait", "er", " d", ended=True)
    assert await ahead.think(20, "wait") == (last, False)
    assert ahead.state == (8, 0)
    assert ahead.engine.log == ["think 1"] * 9


async def test_the_last_tokens_may_be_a_mark() -> None:
    ahead = Ahead(["a", " Wait", EOS])
    assert await ahead.think(5, "wait") == (ahead.stretch("a"), True)
    assert ahead.state == (1, 1)
    assert await ahead.think(5, "wait") == (ahead.stretch(" Wait", ended=True, eos=True), False)
    assert ahead.state == (2, 0)


@pytest.mark.parametrize("ban_end", [False, True])
async def test_no_more_is_read_than_was_requested(ban_end: bool) -> None:
    ahead = Ahead(["a", "b", "c", "d", END])
    assert await ahead.think(3, "wait", ban_end=ban_end) == (ahead.stretch("a", "b", "c"), False)
    assert await ahead.think(1, "wait", ban_end=ban_end) == (ahead.stretch("d"), False)
    assert ahead.engine.log == ["think 1 ban" if ban_end else "think 1"] * 4


async def test_an_end_after_the_limit_is_seen_only_by_the_next_call() -> None:
    ahead = Ahead(["a", " Wait", EOS])
    await ahead.think(5, "wait")
    assert await ahead.think(1, "wait") == (ahead.stretch(" Wait"), False)
    assert await ahead.think(1, "wait") == (ahead.stretch(ended=True, eos=True), False)


PARAGRAPHS: list[tuple[int, list[str], bool, tuple[int, int]]] = [
    (9, ["a", "\n\n", "\n"], True, (3, 1)),
    (4, ["a", "\n\n", "\n"], True, (3, 1)),
    (3, ["a", "\n\n", "\n"], False, (3, 0)),  # the limit is there in any case
    (2, ["a", "\n\n"], False, (2, 0)),
    (1, ["a"], False, (1, 0)),
]


@pytest.mark.parametrize(("tokens", "words", "marked", "state"), PARAGRAPHS)
async def test_a_mark_at_the_limit_is_not_reported(
    tokens: int, words: list[str], marked: bool, state: tuple[int, int]
) -> None:
    ahead = Ahead(["a", "\n\n", "\n", "b", "c", "d"])
    assert await ahead.think(tokens, "paragraph") == (ahead.stretch(*words), marked)
    assert ahead.state == state


@given(
    st.lists(st.sampled_from([" a", " Wait", "er", ",", "\n", "\n\n", " Alternatively"]), max_size=10),
    st.sampled_from(["wait", "paragraph"]),
)
async def test_the_marks_are_those_of_the_whole_text(words: list[str], place: Place) -> None:
    ahead, found, text = Ahead(words), list[int](), ""
    while True:
        stretch, marked = await ahead.think(20, place)
        text += "".join(ahead.texts)
        if not marked:
            break
        found.append(ahead.lookahead.at)
    assert (stretch.ended, text) == (True, "".join(words))
    assert tuple(found) == marks(words, place)


async def test_settled_text_is_passed_on_before_the_mark_is_found() -> None:
    """What can no longer become a mark is told while the thinking goes on: all but the last 13 characters or more."""
    ahead = Ahead(["a long beginning,", " and more", " of it", " Wait", "."])
    assert await ahead.think(9, "wait") == (ahead.stretch("a long beginning,", " and more", " of it"), True)
    assert ahead.texts == ["a long beginning,", " and more of it"]


KNOWN: list[tuple[tuple[int, ...], int, str, bool, list[str]]] = [
    ((2, 5), 9, "ab", True, ["think 2"]),
    ((4,), 5, "abcd", True, ["think 4"]),
    ((4,), 4, "abcd", False, ["think 4"]),
    ((6,), 4, "abcd", False, ["think 4"]),
    ((), 3, "abc", False, ["think 3"]),
]


@pytest.mark.parametrize(("known", "tokens", "words", "marked", "log"), KNOWN)
async def test_recorded_marks_need_no_reading_ahead(
    known: tuple[int, ...], tokens: int, words: str, marked: bool, log: list[str]
) -> None:
    ahead = Ahead("abcdefgh", known)
    stretch, here = await ahead.think(tokens, "wait")
    assert stretch == ahead.stretch(*words)
    assert here is marked
    assert ahead.engine.log == log
    assert ahead.state == (len(words), 0)


async def test_recorded_marks_one_after_the_other() -> None:
    ahead = Ahead("abcdefgh", (2, 5))
    assert await ahead.think(9, "wait") == (ahead.stretch("a", "b"), True)
    assert await ahead.think(9, "wait", ban_end=True) == (ahead.stretch("c", "d", "e"), True)
    assert await ahead.think(9, "wait") == (ahead.stretch("f", "g", "h", ended=True), False)
    assert ahead.engine.log == ["think 2", "think 3 ban", "think 9"]


async def test_an_end_before_a_recorded_mark_is_no_mark() -> None:
    ahead = Ahead(["a", "b", EOS, "c"], (3,))
    assert await ahead.think(9, "wait") == (ahead.stretch("a", "b", ended=True, eos=True), False)


async def test_without_a_place_it_thinks_as_the_session_does() -> None:
    ahead = Ahead(["a", " Wait", ",", END], tops=lambda number: -number)
    stretch, marked = await ahead.think(3)
    assert stretch == Stretch((0, 1, 2), False, False, (), (-1.0, -2.0, -3.0))
    assert marked is False
    assert await ahead.lookahead.think(1) == (Stretch((), ended=True), False)
    assert ahead.engine.log == ["think 3", "think 1"]


REST: list[tuple[int, list[str], bool, tuple[int, int], list[str], list[str]]] = [
    (1, [" Wait"], False, (2, 1), [" Wait"], []),
    (2, [" Wait", ","], False, (3, 0), [" Wait,"], []),
    (3, [" Wait", ",", " c"], False, (4, 0), [" Wait,", " c"], ["think 1"]),
    (4, [" Wait", ",", " c", " d"], False, (5, 0), [" Wait,", " c d"], ["think 2"]),
    (9, [" Wait", ",", " c", " d"], True, (5, 0), [" Wait,", " c d"], ["think 7"]),
]


@pytest.mark.parametrize("ban_end", [False, True])
@pytest.mark.parametrize(("tokens", "words", "ended", "state", "texts", "log"), REST)
async def test_tokens_read_past_a_mark_come_first(
    tokens: int, words: list[str], ended: bool, state: tuple[int, int], texts: list[str], log: list[str], ban_end: bool
) -> None:
    ahead = Ahead(["a", " Wait", ",", " c", " d", EOS])
    assert await ahead.think(9, "wait") == (ahead.stretch("a"), True)
    ahead.engine.log.clear()
    rest = ahead.stretch(*words, ended=ended, eos=ended and not ban_end)
    assert await ahead.think(tokens, ban_end=ban_end) == (rest, False)
    assert (ahead.state, ahead.texts) == (state, texts)
    assert ahead.engine.log == [f"{entry} ban" if ban_end else entry for entry in log]


@pytest.mark.parametrize(("tokens", "ended"), [(1, False), (2, True), (5, True)])
@pytest.mark.parametrize("ending", [END, EOS])
async def test_an_end_that_was_read_past_a_mark_comes_after_the_tokens(tokens: int, ended: bool, ending: str) -> None:
    ahead = Ahead(["a", " Wait", ending, "b"])
    await ahead.think(9, "wait")
    ahead.engine.log.clear()
    eos = ending == EOS
    assert await ahead.think(tokens) == (ahead.stretch(" Wait", ended=ended, eos=ended and eos), False)
    assert await ahead.think(1) == (ahead.stretch(ended=True, eos=eos), False)
    assert (ahead.engine.log, ahead.state) == ([], (2, 0))


async def test_marks_are_found_after_thinking_without_a_place() -> None:
    ahead = Ahead(["a", " b", " c", " d", " Wait", ".", " e"])
    for words in (["a"], [" b", " c"]):
        assert await ahead.think(len(words)) == (ahead.stretch(*words), False)
    assert await ahead.think(9, "wait") == (ahead.stretch(" d"), True)
    assert await ahead.think(3) == (ahead.stretch(" Wait", ".", " e"), False)
    assert ahead.state == (7, 0)


async def test_thinking_goes_on_after_tokens_that_replace_its_end() -> None:
    ahead = Ahead(["a", END, " b", " Wait", ".", " c", END])
    assert await ahead.think(9, "wait") == (ahead.stretch("a", ended=True), False)
    await ahead.lookahead.append(ahead.stretch("\n", " Wait").ids)
    assert ahead.state == (3, 0)
    assert await ahead.think(9, "wait") == (ahead.stretch(" b"), True)
    assert await ahead.think(9, "wait") == (ahead.stretch(" Wait", ".", " c", ended=True), False)
    assert ahead.engine.log == ["think 1", "think 1", "append 2", *["think 1"] * 5]


async def test_tokens_read_past_a_replaced_end_are_dropped() -> None:
    ahead = Ahead(["a", " b", " Wait", ",", " c", " d"])
    await ahead.think(9, "wait")
    assert ahead.state == (2, 2)
    await ahead.lookahead.append(ahead.stretch("x", "y", "z").ids)
    assert ahead.state == (5, 0)
    assert await ahead.think(2) == (ahead.stretch(" c", " d"), False)
