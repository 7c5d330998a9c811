"""Parameters as a user types them: what is read, and what is said about the rest."""

from __future__ import annotations

from typing import Any

import pytest

from cgr.errors import UnknownName, UsageError
from cgr.rules import read_parameters

HINT = "Write it as in --set agree=5."


@pytest.mark.parametrize(
    ("name", "given", "expected"),
    [
        ("budget-forcing", ["text=\\nWait, x=5 "], {"text": "\nWait, x=5 "}),
        ("budget-forcing", ["text=", "at_most= 2 "], {"text": "", "at_most": 2}),
        ("sure-twice", ["rising=True"], {"rising": True}),
        ("sure-twice", ["rising=YES"], {"rising": True}),
        ("sure-twice", ["rising=false"], {"rising": False}),
        ("sure-twice", ["rising=no"], {"rising": False}),
        ("calibrated", ["left=1,2,3,4,5"], {"left": (1.0, 2.0, 3.0, 4.0, 5.0)}),
        ("cgr", [], {}),
    ],
)
def test_what_is_read(name: str, given: list[str], expected: dict[str, Any]) -> None:
    assert read_parameters(name, given) == expected


@pytest.mark.parametrize(
    ("name", "given", "message"),
    [
        ("dynasor", "agree", "'agree' sets nothing."),
        ("dynasor", "=5", "'=5' sets nothing."),
        ("dynasor", "agree=2.5", "The agree of dynasor is a whole number, not '2.5'."),
        ("cgr", "threshold= high", "The threshold of cgr is a number, not 'high'."),
        ("sure-twice", "rising=maybe", "The rising of sure-twice is a yes or no, not 'maybe'."),
    ],
)
def test_what_cannot_be_read(name: str, given: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_parameters(name, [given])
    assert (caught.value.message, caught.value.hint) == (message, HINT)


def test_a_parameter_that_the_rule_does_not_have() -> None:
    with pytest.raises(UnknownName) as caught:
        read_parameters("cgr", ["treshold=0.9"])
    assert caught.value.message == "There is no parameter of cgr called 'treshold'."
    assert caught.value.hint == "Did you mean 'threshold'? Known: interval, threshold."
