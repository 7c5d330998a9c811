"""Answers that are the same without computer algebra."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cgr.rules.same_answer import same_answer


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("7", "7", True),
        ("7", "8", False),
        ("007", "7", True),
        ("8.0", "\\frac{16}{2}", True),
        ("1/2", "0.5", True),
        ("50\\%", "0.5", True),
        ("1,000", "1000", True),
        ("\\left(1, 2\\right)", "(1,2)", True),
        ("x + 1", "x+1", True),
        ("x+1", "1+x", False),
        ("B", "C", False),
        ("", "", True),
    ],
)
def test_as_numbers_or_as_texts_but_for_their_looks(one: str, other: str, same: bool) -> None:
    assert same_answer(one, other) == same_answer(other, one) == same


@given(st.text(max_size=12), st.text(max_size=12))
def test_it_is_symmetric_and_never_fails(one: str, other: str) -> None:
    assert same_answer(one, one)
    assert same_answer(one, other) == same_answer(other, one)
