"""`calibrated` at its boundaries, what is said about parameters that cannot be, and its decisions as arrays."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cgr.errors import UsageError
from cgr.lab.decide.arrays import ProbeArrays
from cgr.lab.decide.columns import Columns
from cgr.lab.store.recorded import RecordedTrace
from cgr.probing import ProbeSpec
from cgr.records import Probe
from cgr.rules import GO_ON, STOP, Calibrated, Seen
from tests.lab.runs import probe
from tests.rules.arrays import INFO, arrays, traced

SAVES_ALL = (9.0, 0.0, 0.0, 0.0, 0.0)
LEARN = "Learn them with `cgr fit`."


def dry(at: int, closed: bool = False) -> Probe:
    return Probe(at, "3", 0.1, closed)


def sure(at: int, certainty: float = 0.96) -> Probe:
    return probe(at, "7", (certainty,))


@pytest.mark.parametrize(
    ("given", "message", "hint"),
    [
        ({"low": 0.6}, "The value of 'low' cannot be above that of 'floor'.", "Fit the rule: `cgr fit`."),
        ({"answered": (1.0,)}, "'answered' takes 5 or 8 weights, as many as 'answered', not 1.", LEARN),
        ({"left": (1.0,) * 8}, "'left' takes 5 or 8 weights, as many as 'answered', not 8.", LEARN),
        ({"answered": (1.0,) * 8}, "'left' takes 5 or 8 weights, as many as 'answered', not 5.", LEARN),
        ({"answered": (float("inf"),) * 5}, "The weights in 'answered' must be numbers.", LEARN),
        ({"left": (float("nan"),) * 5}, "The weights in 'left' must be numbers.", LEARN),
    ],
)
def test_parameters_that_cannot_be(given: dict[str, Any], message: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        Calibrated(**given)
    assert (caught.value.message, caught.value.hint) == (message, hint)


def test_the_level_of_droughts_may_be_the_floor() -> None:
    assert Calibrated(low=0.5, floor=0.5).sure_at == 0.5


@pytest.mark.parametrize(
    ("certainty", "why"),
    [(0.5, "more thinking was not worth its tokens"), (0.49, "a correct answer became too unlikely")],
)
def test_an_answer_of_the_floor_is_an_answer(certainty: float, why: str) -> None:
    assert Calibrated(floor=0.5).why("certainty", certainty) == why
    assert Calibrated(floor=0.5).why("certainty") == "a correct answer became too unlikely"


@pytest.mark.parametrize(
    ("near", "certainty", "expected"),
    [(0.5, 0.5, 6), (0.501, 0.5, 8), (0.5, 0.9, 6), (0.95, 0.9, 8)],
)
def test_a_chance_of_near_is_near(near: float, certainty: float, expected: int) -> None:
    """At 4 tokens; the next probe is 1 interval of 2 away, or 2. Unfitted, the chance is the certainty."""
    rule = Calibrated(interval=2, rare=2, near=near, span=100)
    assert rule.next_probe(Seen(4, (sure(4, certainty),))) == expected


@pytest.mark.parametrize(("price", "action"), [(1.0, STOP), (0.99, GO_ON)])
def test_a_risk_of_the_price_of_the_saving_is_worth_it(price: float, action: object) -> None:
    """The chance is one half, and so is the saving."""
    rule = Calibrated(price=price, left=(0.5, 0.0, 0.0, 0.0, 0.0), span=100)
    assert rule.on_probe(Seen(10, (sure(10, 0.5),))) == action


def test_without_a_chance_no_price_stops_the_thinking() -> None:
    rule = Calibrated(price=100.0, span=100)
    assert rule.weigh(Seen(10, (dry(10, closed=True),))) == (0.0, 0.9)
    assert rule.on_probe(Seen(10, (dry(10, closed=True),))) == GO_ON


def test_without_a_budget_shares_are_of_the_budget_of_the_paper() -> None:
    assert Calibrated(left=SAVES_ALL).weigh(Seen(16_000, (sure(16_000, 0.5),))) == (0.5, 0.5)


@pytest.mark.parametrize(
    ("hopeless", "at", "chance"),
    [
        (((0.0, 0.9),), 4, 0.0),
        (((1 / 16, 0.9),), 1, 0.9),
        (((2 / 16, 0.5), (4 / 16, 0.9)), 1, 0.0),
        (((2 / 16, 0.5), (4 / 16, 0.9)), 3, 0.5),
        (((2 / 16, 0.5), (4 / 16, 0.9)), 4, 0.9),
    ],
)
def test_the_chance_of_a_drought_is_that_of_the_longest_step(
    hopeless: tuple[tuple[float, float], ...], at: int, chance: float
) -> None:
    """A step of no length is none."""
    rule = Calibrated(hopeless=hopeless, span=16)
    assert rule.weigh(Seen(at, (dry(at),))) == (chance, 1 - at / 16)


def test_with_a_floor_of_0_an_open_answer_is_still_a_drought() -> None:
    rule = Calibrated(floor=0.0, hopeless=((6 / 16, 0.95),), price=0.3, span=16)
    assert rule.cut_below(Seen(4, (dry(2),))) == 0.0
    assert rule.cut_below(Seen(6, (dry(2), dry(4)))) is None


# Decisions as arrays

FITTED = Calibrated(interval=10, rare=1, price=0.9, left=SAVES_ALL, span=80, hopeless=((0.25, 0.95),))
STATED = replace(FITTED, answered=(0.0, 1.0, *[0.0] * 6), left=(*SAVES_ALL, 0.0, 0.0, 0.0))
ONE = traced(0, [dry(10, closed=True), dry(20), sure(30), dry(40, closed=True), dry(50, closed=True)])
SHORT = traced(1, [dry(10), sure(20)], length=20)
HOLE = traced(2, [sure(10, 0.55), sure(30)])


def test_what_it_decides_on_all_probes_of_a_grid() -> None:
    """20 tokens without an answer are a drought; a trace ends at its last probe, another lacks the one at 20."""
    found = FITTED.decide_all(arrays(ONE, SHORT, HOLE))
    assert found.made.tolist() == [[True] * 5, [True, True, False, False, False], [True, *[False] * 4]]
    stops = [[False, False, True, False, True], [False, True, False, False, False], [True, *[False] * 4]]
    assert found.stops.tolist() == stops
    assert not found.gives_up.any()
    assert found.whole.tolist() == [[False, True, False, False, True], [False] * 5, [False] * 5]
    assert found.missing_at.tolist() == [-1, -1, 20]
    assert found.interval is None


def test_what_it_decides_if_it_gives_up_after_a_drought() -> None:
    found = replace(FITTED, then="give-up").decide_all(arrays(ONE, SHORT, HOLE))
    assert found.stops.tolist() == [[False, False, True, False, False], [False, True, *[False] * 3], [True, *[False] * 4]]
    assert found.gives_up.tolist() == [[False, True, False, False, True], [False] * 5, [False] * 5]
    assert found.missing_at.tolist() == [-1, -1, 20]
    assert found.made.tolist() == [[True] * 5, [True, True, False, False, False], [True, *[False] * 4]]
    assert found.whole is None


@pytest.mark.parametrize(
    ("irregular", "expected"),
    [(False, [False, False, True, True, False]), (True, [True] * 5)],
)
def test_which_probes_it_makes(irregular: bool, expected: list[bool]) -> None:
    """The first and those after a low chance are two intervals away; at irregular positions every probe is read."""
    rule = replace(FITTED, rare=2, near=0.9)
    trace = traced(0, [dry(1), dry(10), sure(20), sure(30, 0.6), sure(40)])
    assert rule.decide_all(arrays(trace, irregular=irregular)).made.tolist() == [expected]


def test_probes_that_do_not_say_where_their_answers_stand_are_missing() -> None:
    """A dry probe has no answer to look for."""
    told = replace(sure(20), stated=(1, 5))
    traces = traced(0, [dry(10), told, sure(30), sure(40), sure(50)]), traced(1, [dry(10), told], length=20)
    found = STATED.decide_all(arrays(*traces))
    assert found.missing_at.tolist() == [30, -1]
    assert found.made.tolist() == [[True, True, False, False, False]] * 2


def test_token_ids_are_not_read_and_traces_are_read_once_for_all_prices() -> None:
    asked: list[bool] = []

    def read(whole: bool) -> list[RecordedTrace]:
        asked.append(whole)
        return [ONE]

    probes = ProbeArrays(Columns.of([ONE], INFO), ProbeSpec(), read)
    stops = [replace(FITTED, price=price).decide_all(probes).stops.sum() for price in (0.9, 0.0)]
    assert (stops, asked) == ([2, 0], [False])


def test_rules_with_other_parameters_have_decisions_of_their_own() -> None:
    probes = arrays(ONE)
    assert FITTED.decide_all(probes).stops.tolist() == [[False, False, True, False, True]]
    assert replace(FITTED, floor=0.97).decide_all(probes).stops.tolist() == [[False, False, True, True, True]]
