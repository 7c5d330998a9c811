"""What a rule that compares one number does by default, live and on a recording."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

from cgr.lab.decide.arrays import ProbeArrays
from cgr.lab.decide.columns import Columns
from cgr.lab.store.recorded import RecordedTrace
from cgr.probing import ProbeSpec
from cgr.records import Probe
from cgr.rules import (
    GO_ON,
    STOP,
    Cgr,
    CgrDrought,
    CodeStop,
    Conformal,
    Deer,
    Eat,
    LevelRule,
    PumaVerify,
    Rule,
    Seen,
    Smoothed,
)
from cgr.rules.actions import ArrayDecisions
from tests.lab.runs import probe
from tests.rules.arrays import INFO, arrays, traced


def placed(*certainties: float, closed: Sequence[bool] = ()) -> tuple[Probe, ...]:
    """Probes at 10, 20, ..."""
    shut = closed or [True] * len(certainties)
    return tuple(probe(10 * place, "7", (one,), shut[place - 1]) for place, one in enumerate(certainties, 1))


def flags(found: ArrayDecisions) -> dict[str, Any]:
    """All that is not None, as lists."""
    given = {one.name: getattr(found, one.name) for one in fields(found)}
    return {name: np.asarray(one).tolist() for name, one in given.items() if one is not None}


def test_without_a_main_parameter_a_rule_must_say_what_is_enough() -> None:
    class Silent(LevelRule):
        pass

    with pytest.raises(NotImplementedError, match=r"^Silent must say which level is enough$"):
        Silent().enough(0.5)


def test_by_default_no_level_is_hopeless() -> None:
    assert not LevelRule().hopeless(-math.inf, 10)
    assert not Conformal().hopeless(-1.0, 10)


def test_a_rule_without_a_distance_between_probes_makes_none() -> None:
    assert LevelRule().next_probe(Seen(10)) is None


def test_a_rule_without_its_main_parameter_has_its_default() -> None:
    """It is the key under which levels are kept."""
    assert Cgr(threshold=0.5, interval=7).without_main() == Cgr(interval=7)
    plain = LevelRule()
    assert plain.without_main() is plain


def test_the_length_of_a_rising_floor_is_given_or_the_budget() -> None:
    assert Conformal(over=100).within(500) == Conformal(over=100)
    assert Conformal().within(500) == Conformal(over=500)


def test_no_more_probes_than_the_rule_makes() -> None:
    """In each trace; places in the text have no interval."""
    found = Deer(trials=2).decide_all(arrays(traced(0, placed(0.5, 0.6, 0.99)), traced(1, placed(0.99, 0.1))))
    made = [[True, True, False], [True, True, False]]
    nothing = [[False] * 3] * 2
    assert flags(found) == {"made": made, "stops": [[False] * 3, [True, False, False]], "gives_up": nothing}


def test_only_an_answer_that_closed_stops() -> None:
    trace = traced(0, placed(0.99, 0.99, 0.5, 0.99, closed=(False, True, True, True)))
    found = Cgr(threshold=0.9, interval=20).decide_all(arrays(trace))
    made, stops = [False, True, False, True], [False, True, False, True]
    assert flags(found) == {"made": [made], "stops": [stops], "gives_up": [[False] * 4], "interval": 20}
    odd = Cgr(threshold=0.9, interval=10).decide_all(arrays(trace))
    assert odd.stops.tolist() == [[False, True, False, True]]


def test_probes_without_answers_stop_though_they_are_not_closed() -> None:
    probes = [replace(one, closed=False, entropy=entropy) for one, entropy in zip(placed(0, 0, 0), (1, 1, 9), strict=True)]
    found = Eat(min_steps=1).decide_all(arrays(traced(0, probes)))
    assert found.stops.tolist() == [[True, True, False]]


def test_a_rule_that_compares_the_certainty_does_not_read_the_traces() -> None:
    """The certainties are in the columns."""
    asked: list[bool] = []

    def read(whole: bool) -> list[RecordedTrace]:
        asked.append(whole)
        return [trace]

    trace = traced(0, placed(0.5, 0.99))
    probes = ProbeArrays(Columns.of([trace], INFO), ProbeSpec(), read)
    assert Cgr(interval=10).decide_all(probes).stops.tolist() == [[False, True]]
    assert asked == []


def test_a_floor_that_rises_is_compared_at_the_position_of_each_probe() -> None:
    """Over 40 tokens to .5: it is 0 at 20, .25 at 30 and .5 at 40."""
    rule = Conformal(interval=10, floor=0.5, over=40, weight=1.0)
    found = rule.decide_all(arrays(traced(0, placed(0.3, 0.3, 0.3, 0.3, 0.9))))
    assert found.gives_up.tolist() == [[False, False, False, True, False]]


def test_a_drought_as_arrays_names_the_answers_that_are_needed_whole() -> None:
    """20 tokens without an answer are a drought."""
    rule = CgrDrought(interval=10, threshold=0.9, drought=0.25, span=80)
    trace = traced(0, placed(0.1, 0.1, 0.6, 0.95, 0.1, closed=(True, False, True, True, True)))
    assert flags(rule.decide_all(arrays(trace))) == {
        "made": [[True] * 5],
        "stops": [[False, False, False, True, False]],
        "gives_up": [[False] * 5],
        "interval": 10,
        "whole": [[False, True, False, False, False]],
    }


@pytest.mark.parametrize(
    ("rule", "tokens", "drought"),
    [
        (CgrDrought(drought=0.5, span=1), 1, True),
        (CgrDrought(drought=0.5, span=16), 8, True),
        (CgrDrought(drought=0.5, span=16), 7, False),
        (CgrDrought(drought=0.5, span=0), 99, False),
        (CgrDrought(drought=1.0, span=16), 16, False),
    ],
)
def test_how_long_a_drought_is(rule: CgrDrought, tokens: int, drought: bool) -> None:
    assert rule.is_drought(tokens) == drought


def test_an_answer_ends_a_drought_before_the_next_probe() -> None:
    """The next probe may be cut short: 2 tokens after an answer are no drought, though 8 after the start are."""
    rule = CgrDrought(interval=2, drought=0.375, span=16)
    assert rule.cut_below(Seen(8, (Probe(6, "7", 0.6, closed=True),))) == 0.5
    assert rule.cut_below(Seen(12, (Probe(6, "7", 0.6, closed=True),))) is None


def test_the_certainty_of_an_open_answer_is_unstable() -> None:
    """It counts as 0: the second probe is unstable, the third is not."""
    probes = placed(0.9, 0.9, 0.9, closed=(True, False, True))
    assert CodeStop().levels(probes) == pytest.approx([0.0, 0.0, 1 + math.log(30 / 20)])


def test_a_probe_at_the_limit_of_stability_is_stable() -> None:
    assert CodeStop(delta=0.5).levels(placed(0.5, 0.5, 0.5)) == [0.0, 0.0, 0.0]
    assert CodeStop(delta=0.51).levels(placed(0.5, 0.5, 0.5)) == pytest.approx([0.0, 0.0, 2 + math.log(30 / 20)])


@pytest.mark.parametrize(("more", "stops"), [(0.0, True), (1e-6, False)])
def test_a_score_of_the_limit_stops(more: float, stops: bool) -> None:
    probes = placed(0.2, 0.2, 0.2)
    rule = CodeStop(interval=10, limit=CodeStop().levels(probes)[-1] + more)
    assert rule.on_probe(Seen(30, probes)) == (STOP if stops else GO_ON)
    found = rule.decide_all(arrays(traced(0, probes)))
    assert flags(found)["stops"] == [[False, False, stops]]


def test_a_confirmed_answer_has_the_level_of_its_candidate() -> None:
    probes = placed(0.75, 0.5, 0.9, 0.1, 0.2)
    assert PumaVerify(drop=0.25).levels(probes) == [-1.0, 0.75, 0.5, -1.0, 0.1]
    assert PumaVerify(drop=0.25).levels([]) == []
    assert PumaVerify(threshold=0.75, drop=0.25).on_probe(Seen(20, probes[:2])) == STOP


@pytest.mark.parametrize(
    ("rule", "certainty", "action"),
    [
        (Smoothed(threshold=0.75, floor=0.5, weight=1), 0.75, STOP),
        (Smoothed(threshold=0.76, floor=0.5, weight=1), 0.75, GO_ON),
        (Smoothed(threshold=0.5, floor=0.9), 0.7, GO_ON),
    ],
    ids=["at the threshold", "below it", "dry, with a threshold below the floor"],
)
def test_a_smoothed_certainty_at_the_threshold(rule: Smoothed, certainty: float, action: object) -> None:
    assert rule.on_probe(Seen(10, placed(certainty))) == action


@pytest.mark.parametrize(
    ("rule", "certainty", "why"),
    [
        (CgrDrought(drought=0.2), None, "the certainty stayed below 0.5 for 20% of the budget"),
        (CgrDrought(drought=0.2), 0.99, "the certainty reached 0.99"),
        (CodeStop(), None, "the certainty was unstable for too long"),
        (CodeStop(first=0.6), 0.6, "the certainty reached the threshold"),
        (CodeStop(first=0.6), 0.59, "the certainty was unstable for too long"),
    ],
)
def test_a_stop_without_a_certainty_is_one_for_another_reason(rule: Rule, certainty: float | None, why: str) -> None:
    assert (rule.why("certainty") if certainty is None else rule.why("certainty", certainty)) == why
