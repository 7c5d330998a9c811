"""The confidence sequence of audits by hand: what is bet when, what a bet makes of it, and blocks of losses."""

from __future__ import annotations

import math

import pytest

from cgr.lab.score.sequential import (
    BLOCK,
    LARGEST,
    evidence_above,
    evidence_below,
    factors,
    risk_bounds,
    unspent,
    with_draw,
)

ABOVE = (1.25, 1.5, 2.0, 3.0, 5.0, 5.5)  # what the bets make of 1 after a loss, at a risk of 0.1
BELOW = (0.8, 2 / 3, 0.5, 1 / 3, 0.2, 0.1, 0.0)


def kept(lost: float) -> float:
    """What a fair bet makes of 1 without a loss, at a risk of 0.1."""
    return (1 - 0.1 * lost) / 0.9


@pytest.mark.parametrize(("block", "share"), [(0, 1), (1, 1 / 2), (3, 1 / 3), (7, 1 / 4), (1023, 1 / 11)])
def test_the_share_that_is_not_bet_yet(block: int, share: float) -> None:
    assert unspent(block) == pytest.approx(share)


@pytest.mark.parametrize(
    ("mean", "ratio", "found"),
    [
        (0.1, 2.0, (2, 8 / 9)),
        (0.1, 10.0, (5.5, 0.5)),  # at most half way from 0.1 to 1
        (0.5, 1.5, (1.5, 0.5)),
        (0.5, 3.0, (1.5, 0.5)),
        (0.1, 0.5, (0.5, 0.95 / 0.9)),
        (0.1, 0.0, (0, 1 / 0.9)),
    ],
)
def test_what_a_bet_makes_of_1(mean: float, ratio: float, found: tuple[float, float]) -> None:
    assert factors(mean, ratio) == pytest.approx(found)


@pytest.mark.parametrize(
    ("blocks", "count", "found"),
    [
        ((0,), 1, sum(0.5 * kept(one) for one in ABOVE) / 6 + 1 / 2),
        ((1,), 1, sum(0.5 * one for one in ABOVE) / 6 + 1 / 2),
        ((2,), 3, sum(0.5 * one**2 * kept(one) for one in ABOVE) / 6 + 1 / 2),
        ((1,), 64, sum(0.5 * one * kept(one) ** 63 for one in ABOVE) / 6 + 1 / 2),
        (
            (0, 1),
            65,
            sum((0.5 * kept(one) ** 64 + 0.5 - 1 / (1 + math.log2(3))) * one for one in ABOVE) / 6 + 1 / (1 + math.log2(3)),
        ),
    ],
)
def test_the_evidence_for_a_higher_risk_by_hand(blocks: tuple[int, ...], count: int, found: float) -> None:
    assert evidence_above(blocks, count, 0.1) == pytest.approx(found, rel=1e-12)


@pytest.mark.parametrize(
    ("losses", "count", "found"),
    [
        (0, 1, sum(map(kept, BELOW)) / 7),
        (1, 1, sum(BELOW) / 7),
        (1, 3, sum(one * kept(one) ** 2 for one in BELOW) / 7),
        (3, 5, sum(one**3 * kept(one) ** 2 for one in BELOW) / 7),
    ],
)
def test_the_evidence_for_a_lower_risk_by_hand(losses: int, count: int, found: float) -> None:
    assert evidence_below(losses, count, 0.1) == pytest.approx(found, rel=1e-12)


def test_money_is_cut_off_where_a_float_would_end() -> None:
    assert evidence_above((BLOCK,) * 400, 400 * BLOCK, 0.01) == pytest.approx(LARGEST)
    assert evidence_below(0, 10**6, 0.5) == pytest.approx(LARGEST)
    assert evidence_above((BLOCK,) * 5, 5 * BLOCK, 0.01) <= LARGEST + 1


@pytest.mark.parametrize(("blocks", "count", "delta"), [((0,), 40, 0.05), ((9,), 64, 0.05), ((3, 30), 100, 0.01)])
def test_the_bounds_are_where_the_evidence_is_enough(blocks: tuple[int, ...], count: int, delta: float) -> None:
    low, high = risk_bounds(blocks, count, delta)
    losses, near = sum(blocks), 1e-10
    assert evidence_below(losses, count, high) >= 1 / delta > evidence_below(losses, count, high - near)
    if low:
        assert evidence_above(blocks, count, low) >= 1 / delta > evidence_above(blocks, count, low + near)
    assert (low > 0) == (losses > 0)


@pytest.mark.parametrize(
    ("blocks", "count", "loss", "found"),
    [
        ((), 0, False, (0,)),
        ((), 0, True, (1,)),
        ((3,), 63, False, (3,)),
        ((3,), 63, True, (4,)),
        ((3,), 64, False, (3, 0)),
        ((3,), 64, True, (3, 1)),
        ((3, 1), 65, True, (3, 2)),
        ((3, 1), 128, True, (3, 1, 1)),
    ],
)
def test_losses_are_counted_in_blocks(blocks: tuple[int, ...], count: int, loss: bool, found: tuple[int, ...]) -> None:
    assert with_draw(blocks, count, loss) == found
