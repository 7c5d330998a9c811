"""Answers that are the same without computer algebra."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cgr.records import Probe
from cgr.rules.same_answer import Quantity, agrees, quantities, quantity, same_answer


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


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("$31$", 31),
        ("\\$32", 32),
        (" $ 33 $ ", 33),
        ("1{,}034", 1034),
        ("1,\\!035", 1035),
        ("1\\,036", 1036),
        ("1\\ 037", 1037),
        ("1\u00a0038", 1038),
        ("1\u202f039", 1039),
        ("\u221240", -40),
        ("\\dfrac{1}{41}", Fraction(1, 41)),
        ("\\tfrac{1}{42}", Fraction(1, 42)),
        ("43^\\circ", 43),
        ("44^{\\circ}", 44),
        ("45\u00b0", 45),
        ("46\u00b0 .", 46),
        ("47.", 47),
        (".48", Fraction(48, 100)),
        ("X49", None),
        ("50X", None),
        ("51/0", None),
    ],
)
def test_the_number_in_a_text(text: str, value: int | Fraction | None) -> None:
    found = quantity(text)
    assert (None if found is None else (found.value, found.percent)) == (None if value is None else (value, False))


@pytest.mark.parametrize("text", ["61%", "61\\%", "61%.", "61 %"])
def test_a_percent_sign_is_kept(text: str) -> None:
    assert quantity(text) == Quantity(Fraction(61), True, "61")


@pytest.mark.parametrize(
    ("one", "other", "values"),
    [
        ("1,22", "1.22", (Fraction(122, 100),) * 2),
        ("1.23", "1,23", (Fraction(123, 100),) * 2),
        ("1,24", "124", None),
        ("124", "1,24", None),
        ("1,225", "1225", (1225, 1225)),
        ("71", "x", None),
        ("x", "72", None),
    ],
)
def test_a_comma_is_decimal_only_beside_a_point(one: str, other: str, values: tuple[Fraction, Fraction] | None) -> None:
    found = quantities(one, other)
    assert (None if found is None else (found[0].value, found[1].value)) == values


@pytest.mark.parametrize(
    ("answer", "closed", "final", "expected"),
    [
        ("81", True, Probe(9, "81.0", 0.9, closed=True), True),
        ("81", True, Probe(9, "82", 0.9, closed=True), False),
        ("81", False, Probe(9, "81", 0.9, closed=True), False),
        ("81", True, Probe(9, "81", 0.9, closed=False), False),
        (None, True, Probe(9, "", 0.9, closed=True), True),
        (None, True, Probe(9, "81", 0.9, closed=True), False),
    ],
)
def test_a_complete_answer_that_equals_the_final_one_agrees(
    answer: str | None, closed: bool, final: Probe, expected: bool
) -> None:
    assert agrees(answer, closed, final) == expected
