"""The values that a parameter may have: in words, and what is said about a value that is not allowed."""

from __future__ import annotations

import math
from typing import Any

import pytest

from cgr.errors import UnknownName, UsageError
from cgr.rules.limits import CERTAINTY, COUNT, SHARE, Limits, parameter

WAYS = Limits(options=("replace", "ban"))


@pytest.mark.parametrize(
    ("limits", "text"),
    [
        (CERTAINTY, "at least 0 and at most 1"),
        (SHARE, "more than 0 and at most 1"),
        (COUNT, "at least 1"),
        (Limits(2.5, above=True), "more than 2.5"),
        (Limits(high=3), "at most 3"),
        (Limits(), ""),
        (WAYS, "replace or ban"),
    ],
)
def test_limits_in_words(limits: Limits, text: str) -> None:
    assert str(limits) == text


@pytest.mark.parametrize(
    ("limits", "value"),
    [
        (CERTAINTY, 0),
        (CERTAINTY, 1),
        (CERTAINTY, 0.5),
        (SHARE, 1e-9),
        (SHARE, 1),
        (COUNT, 1),
        (COUNT, math.inf),
        (Limits(), -math.inf),
        (WAYS, "ban"),
    ],
)
def test_values_that_are_allowed(limits: Limits, value: object) -> None:
    limits.check("'x' of 'y'", value)


@pytest.mark.parametrize(
    ("limits", "value", "shown", "hint"),
    [
        (CERTAINTY, -0.01, "-0.01", "Use at least 0 and at most 1."),
        (CERTAINTY, 1.01, "1.01", "Use at least 0 and at most 1."),
        (CERTAINTY, math.nan, "nan", "Use at least 0 and at most 1."),
        (SHARE, 0, "0", "Use more than 0 and at most 1."),
        (COUNT, 0, "0", "Use at least 1."),
        (Limits(), math.nan, "nan", "Use a number."),
        (COUNT, "two", "'two'", "Use a number."),
    ],
)
def test_values_that_are_not_allowed(limits: Limits, value: Any, shown: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        limits.check("'x' of 'y'", value)
    assert (caught.value.message, caught.value.hint) == (f"The value of 'x' of 'y' cannot be {shown}.", hint)


@pytest.mark.parametrize(
    ("value", "name", "hint"),
    [("bann", "bann", "Did you mean 'ban'? Known: ban, replace."), (7, "7", "Known: ban, replace.")],
)
def test_a_value_that_is_no_option(value: object, name: str, hint: str) -> None:
    with pytest.raises(UnknownName) as caught:
        WAYS.check("'forcing' of 'y'", value)
    message = f"There is no value of 'forcing' of 'y' called '{name}'."
    assert (caught.value.message, caught.value.hint) == (message, hint)


def test_a_parameter_keeps_its_default_its_limits_and_its_place_in_the_probe_style() -> None:
    made = parameter(0.5, CERTAINTY, style="tokens")
    assert (made.default, dict(made.metadata)) == (0.5, {"limits": CERTAINTY, "style": "tokens"})
    plain = parameter("text")
    assert (plain.default, dict(plain.metadata)) == ("text", {"limits": None, "style": ""})
