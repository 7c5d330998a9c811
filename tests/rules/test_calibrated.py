"""The rule whose chances are learned: each sentence of its definition, live and replayed."""

from __future__ import annotations

import math
from typing import Any

import pytest

from cgr.errors import NotRecorded
from cgr.records import Probe
from cgr.rules import Calibrated, Seen, make_rule
from cgr.rules.history import History, features
from tests.rules.beyond import UNCLOSED, Row, gist, live, recorded

NONE, UNSURE, HALF, SURE, OTHER = ("3", 0.1), ("3", 0.3), ("7", 0.6), ("7", 0.96), ("8", 0.96)
ALL = (2, 4, 6, 8, 10, 12, 14)
ENDLESS = 1 << 20  # a budget of which hardly anything is spent


def made(**parameters: Any) -> Calibrated:
    """Every interval is probed, and stopping saves all that is left of the budget."""
    chosen: dict[str, Any] = {"price": 0.1, "rare": 1, "left": (9, 0, 0, 0, 0), "floor": 0.5, "span": ENDLESS}
    return Calibrated(interval=2, **chosen | parameters)


def weighed(*weights: float, span: int = 16) -> Calibrated:
    """Weights of the constant, the certainty, how long it held, the position, the changes."""
    return made(answered=weights, span=span)


HELD, SELDOM = weighed(-18, 0, 10, 0, 0), made(rare=3, near=0.55, price=0.05)
DROUGHT: dict[str, Any] = {"hopeless": ((2 / 16, 0.5), (6 / 16, 0.95)), "span": 16, "price": 0.3}
DRY, GIVES = made(**DROUGHT), made(**DROUGHT, then="give-up", low=0.2)
TENTH = Calibrated(interval=2, rare=1, price=0.41, span=ENDLESS)
BY_CHANGES = made(price=0.5, left=(0, 0, 0, 0, 1))
ROWS = [
    Row("unfitted, the chance is the certainty", made(price=0.05), [NONE, HALF, SURE], (2, 4, 6), "certainty", 6, "7"),
    Row("unfitted, the saving is a tenth", TENTH, [HALF, SURE], (2, 4), "certainty", 4, "7"),
    Row("a risk of at most price times saving stops", made(price=0.41), [HALF], (2,), "certainty", 2, "7"),
    Row("one above it does not", made(price=0.39), [HALF], ALL, "budget", 16, "7"),
    Row(
        "the chance depends on the certainty",
        weighed(0, 6, 0, 0, 0, span=ENDLESS),
        [NONE, HALF],
        (2, 4),
        "certainty",
        4,
        "7",
    ),
    Row("on how long the answer has held", HELD, [NONE, HALF], (2, 4, 6, 8), "certainty", 8, "7"),
    Row("another answer has not held", HELD, [SURE, SURE, OTHER], (2, 4, 6, 8, 10), "certainty", 10, "8"),
    Row("on the position", weighed(20, 0, 0, 20, 0), [SURE], (2, 4, 6, 8), "certainty", 8, "7"),
    Row("on the changes", weighed(-10, 0, 0, 0, 20), [SURE, SURE, OTHER], (2, 4, 6), "certainty", 6, "8"),
    Row("the saving depends on the same", BY_CHANGES, [SURE, OTHER], (2, 4), "certainty", 4, "8"),
    Row("it is no more than the rest of the budget", made(price=0.045, span=16), [SURE], ALL, "budget", 16, "7"),
    Row("and no less than nothing", made(left=(-1, 0, 0, 0, 0)), [SURE], ALL, "budget", 16, "7"),
    Row("after a drought it stops with the last answer", DRY, [NONE], (2, 4, 6), "certainty", 6, "3"),
    Row("below the floor is a drought", DRY, [UNSURE], (2, 4, 6), "certainty", 6, "3"),
    Row("an answer that is not closed is not given", DRY, [NONE, NONE, UNCLOSED, NONE], (2, 4, 6, 8), "certainty", 8, "3"),
    Row("an answer between begins it anew", DRY, [NONE, NONE, HALF, NONE], (2, 4, 6, 8, 10, 12), "certainty", 12, "3"),
    Row("or it gives up", GIVES, [NONE], (2, 4, 6), "gave_up", 6, None),
    Row("also if the answer is not closed", GIVES, [UNCLOSED], (2, 4, 6), "gave_up", 6, None),
    Row(
        "with a low of its own, above that begins anew",
        GIVES,
        [NONE, NONE, UNSURE, NONE],
        (2, 4, 6, 8, 10, 12),
        "gave_up",
        12,
        None,
    ),
    Row("neither an answer nor a drought goes on", GIVES, [UNSURE], ALL, "budget", 16, "3"),
    Row("unfitted, no drought ends the thinking", made(price=0.4), [NONE], ALL, "budget", 16, "3"),
    Row("while the chance is below near, one interval in rare", SELDOM, [NONE], (6, 12), "budget", 16, "3"),
    Row("else each", SELDOM, [NONE, NONE, HALF, SURE], (6, 8), "certainty", 8, "7"),
]


STATED = made(answered=(0, 0, 0, 0, 0, -30, 35, 0), left=(9,) + (0,) * 7)  # stated once says no, twice says yes
AGO = made(answered=(50, 0, 0, 0, 0, 0, 0, -10), left=(9,) + (0,) * 7)  # yes unless it is long ago
TWICE = "a b 7 c d 7 e f g h i j k l m n"
LARGER = TWICE.replace("7", "77")
ROWS += [
    Row("on how often the answer stands in the thinking", STATED, [SURE], (2, 4, 6), "certainty", 6, "7", thinking=TWICE),
    Row(
        "which must be stated as a whole",
        STATED,
        [SURE],
        ALL,
        "budget",
        16,
        "7",
        thinking=LARGER,
    ),
    Row("never counts as long ago", AGO, [OTHER], ALL, "budget", 16, "8", thinking=TWICE),
    Row("and just now as near", AGO, [OTHER, OTHER, SURE], (2, 4, 6), "certainty", 6, "7", thinking=TWICE),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.line)
async def test_live(row: Row) -> None:
    expected = (row.cause, row.tokens, row.answer, row.cause == "gave_up", row.probes)
    assert gist(await live(row)) == expected


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.line)
async def test_replayed_the_same(row: Row) -> None:
    assert gist(await recorded(row)) == gist(await live(row))


def test_a_span_of_0_is_the_budget_at_hand() -> None:
    assert Calibrated().within(500) == Calibrated(span=500)
    assert Calibrated(span=100).within(500) == Calibrated(span=100)


def test_features_are_shares_of_the_budget() -> None:
    """Twice the budget, everything at twice the distance: the same."""
    assert features(History(0.9, 40, 1), 80, 320) == features(History(0.9, 80, 1), 160, 640)


def test_a_certainty_of_one_is_finite() -> None:
    assert all(math.isfinite(value) for value in features(History(1.0), 1, 100))
    seen = Seen(1, (Probe(1, "7", 1.0, True, (1.0,)),))
    assert Calibrated(answered=(0.0, 1e9, 0.0, 0.0, 0.0)).weigh(seen)[0] == pytest.approx(1)


def test_a_file_of_the_first_form_decides_as_before() -> None:
    """It had `hope`, the level below which there was none, and gave up."""
    old = {"price": 0.3, "rare": 1, "floor": 0.5, "hope": 0.2, "span": 16, "hopeless": [[0.125, 0.5], [0.375, 0.95]]}
    opened = make_rule("calibrated", interval=2, left=[9, 0, 0, 0, 0], **old)
    assert opened == GIVES
    assert not opened.reads_stated


def test_a_live_probe_is_cut_short_unless_its_answer_may_be_given() -> None:
    """A drought of 6 of 16 tokens ends the thinking."""
    dry = tuple(Probe(at, "3", 0.1, closed=True) for at in (2, 4, 6))
    assert [DRY.cut_below(Seen(at, dry[:before])) for at, before in ((2, 0), (4, 1), (6, 2), (8, 3))] == [
        0.5,
        0.5,
        None,
        None,
    ]
    assert GIVES.cut_below(Seen(6, dry[:2])) == 0.2


def test_why_it_stopped() -> None:
    assert DRY.why("certainty", 0.9) == "more thinking was not worth its tokens"
    assert DRY.why("certainty", 0.1) == "a correct answer became too unlikely"


def test_without_where_the_answer_stands_it_cannot_decide() -> None:
    seen = Seen(2, (Probe(2, "7", 0.9, True, (0.9,)),))
    with pytest.raises(NotRecorded, match="stands in the thinking was not recorded"):
        STATED.on_probe(seen)


def test_the_price_is_compared_cautious_ones_last() -> None:
    assert Calibrated.main == "price"
    assert list(Calibrated.grid) == sorted(Calibrated.grid, reverse=True)
