"""The variants from which a fit of `give-up` chooses."""

from __future__ import annotations

import pytest

from cgr.rules import GiveUpEarly
from cgr.rules.give_up import FLOORS


@pytest.mark.parametrize(
    ("budget", "patiences"),
    [
        (32_000, (4, 6, 8, 10, 13, 16, 21, 26, 32)),
        (7_900, (1, 2, 3, 4, 5, 6, 7)),
        (2_000, (1, 2)),
        (10, (1, 2)),
    ],
)
def test_every_floor_with_patiences_up_to_the_probes_of_the_budget(budget: int, patiences: tuple[int, ...]) -> None:
    rule = GiveUpEarly(threshold=0.9, interval=1000)
    expected = [GiveUpEarly(threshold=0.9, floor=floor, patience=most) for floor in FLOORS for most in patiences]
    assert list(rule.candidates(budget)) == expected
