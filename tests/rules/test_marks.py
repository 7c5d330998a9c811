"""Marks in the thinking: in a whole text, and the same ones in a text that is still coming."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cgr.rules.marks import Marks, Place, marks

PIECES = ("Wait", " Wait", "W", "a", "it", "er", "Alter", "natively", "Alternatively", "\n", "\n\n", ".\n", " ", "é", "")


@pytest.mark.parametrize(
    ("texts", "place", "positions"),
    [
        (["So", " 5", ".", " Wait", ",", " Waiter"], "wait", (3,)),
        (["Wait", " no", "\nWait", "\n", "Alternatively"], "wait", (2, 4)),
        (["a", ".W", "ait", " b"], "wait", (1,)),
        (["a", " Wait"], "wait", (1,)),
        (["a", " wait", " await", " Waits"], "wait", ()),
        (["a", ".\n\n", "b", "\n", "\n", "c", "\n\n\n", "d"], "paragraph", (2, 5, 7)),
        (["a\n\nb"], "paragraph", (1,)),
        (["a", "b"], "paragraph", ()),
        ([], "wait", ()),
    ],
)
def test_marks_are_before_a_wait_and_after_a_paragraph(texts: list[str], place: Place, positions: tuple[int, ...]) -> None:
    assert marks(texts, place) == positions


@given(st.lists(st.sampled_from(PIECES), max_size=24), st.sampled_from(("wait", "paragraph")))
def test_coming_token_by_token_they_are_the_same(texts: list[str], place: Place) -> None:
    coming, at, found = Marks(place), 0, []
    for number in range(len(texts) + 1):
        over = number == len(texts)
        while (mark := coming.after(at, over=over)) is not None:
            assert mark <= number
            found.append(mark)
            at = mark
        if not over:
            coming.add(texts[number])
    assert tuple(found) == marks(texts, place)
    assert len(coming) == len(texts)


@given(st.lists(st.sampled_from(PIECES), max_size=24), st.sampled_from(("wait", "paragraph")), st.data())
def test_what_was_named_stays_whatever_follows(texts: list[str], place: Place, data: st.DataObject) -> None:
    coming = Marks(place)
    for text in texts:
        coming.add(text)
    mark = coming.after(0)
    more = data.draw(st.lists(st.sampled_from(PIECES), max_size=8))
    if mark is not None:
        assert marks([*texts, *more], place)[0] == mark


@pytest.mark.parametrize(
    ("texts", "place", "settled"),
    [
        ([], "wait", 0),
        (["a"], "wait", 0),
        (["0123456789", "abc"], "wait", 0),
        (["0123456789", "abcd", "efghijklm"], "wait", 1),
        (["0123456789", "abc", "efghijklm"], "wait", 0),
        (["a", "b"], "paragraph", 1),
        (["a", "b", "\n"], "paragraph", 2),
        (["a", "\n\n", "b", "c"], "paragraph", 3),
    ],
)
def test_tokens_in_which_no_mark_can_appear_any_more(texts: list[str], place: Place, settled: int) -> None:
    """A word of 13 letters, or the line breaks at the end, may still become a mark."""
    coming = Marks(place)
    for text in texts:
        coming.add(text)
    assert coming.settled == settled


def test_two_paragraphs_in_a_token_are_one_mark() -> None:
    coming = Marks("paragraph")
    for text in ("a\n\nb\n\nc", "d", "\n\n", "e"):
        coming.add(text)
    assert [coming.after(at, over=True) for at in range(4)] == [1, 3, 3, None]
