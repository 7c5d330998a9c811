"""Where an answer stands in the thinking: as a whole number, or as normalised text."""

from __future__ import annotations

import pytest

from cgr.rules.stated import NEVER, stated


@pytest.mark.parametrize(
    ("answer", "thinking", "expected"),
    [
        ("7", "x=7.", (1, 1)),
        ("7", "x=7, so 7", (2, 0)),
        ("7", "17 and 77 and 7.5 and 0.7", NEVER),
        ("7", "7. Then", (1, 6)),
        ("1234", "it is 1,234 in all", (1, 7)),
        ("1,234", "it is 1234", (1, 0)),
        ("0.5", "so 0.5 then", (1, 5)),
        ("50\\%", "it is 50% now", (1, 5)),
        ("B", "Both are bad, so (B)", (1, 1)),
        ("\\frac{1}{2} x", "x is $\\dfrac{1}{2} x$.", (1, 1)),
        ("x + 1", "we get x+1 here", (1, 5)),
        ("", "anything", NEVER),
        ("", "a+(b)", NEVER),
        (" ", "a+(b)", NEVER),
        ("7", "", NEVER),
    ],
)
def test_stated(answer: str, thinking: str, expected: tuple[int, int]) -> None:
    assert stated(answer, thinking) == expected
