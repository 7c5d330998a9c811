"""Stop strings of white space: they end the answer, but not before its first word."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cgr.drive.answer import BlankStops

ROWS: list[tuple[tuple[str, ...], list[str], str, bool]] = [
    ((), ["\n\n", "a"], "\n\na", False),
    (("\n\n",), ["\n", "\n", "a", "\n", "b", "\n\n", "c"], "\n\na\nb", True),
    (("\n\n",), ["\n\na\n"], "\n\na\n", False),
    (("\n\n", "\n"), ["a", "\n"], "a", True),
    (("\n\n",), ["\n\n \n\nFinal", "\n", "\nx"], "\n\n \n\nFinal", True),
]


def written(stops: tuple[str, ...], pieces: list[str]) -> tuple[str, bool]:
    found, text = BlankStops(stops), ""
    for piece in pieces:
        shown, ended = found.feed(piece)
        text += shown
        if ended:
            return text, True
    return text + found.flush(), False


@pytest.mark.parametrize(("stops", "pieces", "text", "ended"), ROWS)
def test_blank_stops(stops: tuple[str, ...], pieces: list[str], text: str, ended: bool) -> None:
    assert written(stops, pieces) == (text, ended)


@given(pieces=st.lists(st.text("a\n ", max_size=4)), stops=st.sets(st.text("\n ", min_size=1, max_size=3), max_size=2))
def test_pieces_do_not_matter(pieces: list[str], stops: set[str]) -> None:
    assert written(tuple(stops), pieces) == written(tuple(stops), ["".join(pieces)])
