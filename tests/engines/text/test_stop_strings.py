"""Stop strings in text that arrives in pieces: the result does not depend on how the text is divided."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cgr.engines.text.stop_strings import StopStrings


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
def test_pieces(stops: tuple[str, ...], pieces: list[str], passed: list[str], found: bool) -> None:
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
