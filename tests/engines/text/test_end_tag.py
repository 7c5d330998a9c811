"""The end of thinking in a stream of tokens: one token, several, or glued to other text."""

from __future__ import annotations

from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cgr.engines.text.chat import EndTag, EndTagWatch

ONE = EndTag("</think>", (99,))
SEVERAL = EndTag("</think>", (60, 61, 62))


def feed(watch: EndTagWatch, *texts: str) -> list[list[str]]:
    """What each token sets free."""
    return [[text for _, text in watch.feed(number, piece)] for number, piece in enumerate(texts)]


def test_a_tag_of_one_token_is_known_by_its_id() -> None:
    watch = EndTagWatch(ONE)
    assert watch.feed(1, "a") == []
    assert watch.feed(2, "b") == [(1, "a")]
    assert not watch.found
    assert watch.feed(99, "") == [(2, "b")]
    assert watch.found
    assert watch.held == []


def test_the_text_of_a_special_tag_is_not_the_tag() -> None:
    """A model may write about its own tags."""
    watch = EndTagWatch(ONE)
    watch.feed(1, "</think>")
    assert not watch.found


@pytest.mark.parametrize("tag", [ONE, SEVERAL])
def test_the_last_token_is_held_until_the_stream_is_over(tag: EndTag) -> None:
    watch = EndTagWatch(tag)
    assert feed(watch, "a", "b") == [[], ["a"]]
    assert watch.flush(eos=False) == [(1, "b")]
    assert watch.held == []


@pytest.mark.parametrize("tag", [ONE, SEVERAL])
def test_the_token_that_ended_the_turn_is_no_thinking(tag: EndTag) -> None:
    watch = EndTagWatch(tag)
    watch.feed(1, "a")
    watch.feed(7, "")
    assert watch.flush(eos=True) == []
    assert watch.held == []


SPREAD: list[tuple[str, list[str], list[str]]] = [
    ("exactly its tokens", ["a", "</", "think", ">"], ["a"]),
    ("character by character", ["a", *"</think>"], ["a"]),
    ("glued in front", ["a", "b</", "think>"], ["a"]),
    ("glued behind", ["a", "</think>\n\n"], ["a"]),
    ("glued on both sides", ["a", "b</th", "ink>c"], ["a"]),
    ("in one token", ["a", "</think>"], ["a"]),
    ("at once", ["</think>"], []),
    ("after a false start", ["a", "</th", "</think>"], ["a", "</th"]),
    ("after a beginning that repeats", ["<", "<", "/", "think", ">"], ["<"]),
]


@pytest.mark.parametrize(("texts", "thinking"), [row[1:] for row in SPREAD], ids=[row[0] for row in SPREAD])
def test_a_tag_spread_over_tokens(texts: list[str], thinking: list[str]) -> None:
    watch = EndTagWatch(SEVERAL)
    freed = list(chain.from_iterable(feed(watch, *texts)))
    assert watch.found
    assert freed == thinking
    assert watch.held == []


def test_what_only_began_like_the_tag_is_set_free() -> None:
    watch = EndTagWatch(SEVERAL)
    assert feed(watch, "a", "</", "th", "at") == [[], ["a"], [], ["</", "th"]]
    assert not watch.found
    assert [text for _, text in watch.flush(eos=False)] == ["at"]


@pytest.mark.parametrize(
    ("texts", "free", "held"),
    [
        (["a", "b"], ["b"], []),
        (["a", "b<"], [], ["b<"]),
        (["a", "</", "th"], [], ["</", "th"]),
        (["a", "</", "x"], ["x"], []),
        (["a", "</", "x<"], [], ["x<"]),
    ],
)
def test_after_a_whole_reply_only_what_may_begin_the_tag_is_held(
    texts: list[str], free: list[str], held: list[str]
) -> None:
    watch = EndTagWatch(SEVERAL)
    feed(watch, *texts)
    assert [text for _, text in watch.settle()] == free
    assert [text for _, text in watch.held] == held
    assert not watch.found


def test_after_a_whole_reply_a_tag_of_one_token_holds_nothing() -> None:
    watch = EndTagWatch(ONE)
    feed(watch, "a", "<")
    assert [text for _, text in watch.settle()] == ["<"]
    assert watch.held == []


pieces = st.lists(st.text(alphabet="</think>", min_size=0, max_size=5), max_size=12)


@given(pieces, pieces)
def test_whatever_the_tokens(before: list[str], after: list[str]) -> None:
    """Freed is a beginning of the stream: all of it without a tag, else as many whole tokens as end before the tag."""
    texts = [*before, "</thi", "nk>", *after] if len(before) % 2 else before
    joined = "".join(texts)
    watch, freed = EndTagWatch(SEVERAL), []
    for number, text in enumerate(texts):
        freed += watch.feed(number, text)
        if watch.found:
            break
    assert watch.found == ("</think>" in joined)
    if not watch.found:
        freed += watch.flush(eos=False)
        assert freed == list(enumerate(texts))
        return
    start = joined.index("</think>")
    assert freed == list(enumerate(texts))[: len(freed)]
    assert len("".join(text for _, text in freed)) <= start
    assert len("".join(texts[: len(freed) + 1])) > start


@given(st.lists(st.integers(0, 3), max_size=12))
def test_whatever_the_ids(ids: list[int]) -> None:
    watch, freed = EndTagWatch(EndTag("x", (3,))), []
    for token in ids:
        freed += watch.feed(token, "")
        if watch.found:
            break
    freed += watch.flush(eos=False)
    assert watch.found == (3 in ids)
    assert [token for token, _ in freed] == (ids[: ids.index(3)] if 3 in ids else ids)


def test_which_tags_are_one_token() -> None:
    assert ONE.token == 99
    assert SEVERAL.token is None
