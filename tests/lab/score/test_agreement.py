from __future__ import annotations

import pytest

from cgr.lab.decide.columns import FINAL, GOLD
from cgr.lab.score.agreement import worded


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("equal accuracy, and accuracy again", "equal agreement, and agreement again"),
        ("Accuracy and accuracy", "Agreement and agreement"),
        ("Acc. and acc.", "Agr. and agr."),
        ("The oracle saves 20%.", "Head room on the questions shown: 20%."),
        ("Of oracle", "Of head room"),
        ("half of the oracle's saving", "half of the head room"),
        ("tokens", "tokens"),
    ],
)
def test_a_text_about_accuracy_is_said_about_agreement_where_answers_are_compared_with_final_ones(
    text: str, expected: str
) -> None:
    assert worded(text, FINAL) == expected
    assert worded(text, GOLD) == text
