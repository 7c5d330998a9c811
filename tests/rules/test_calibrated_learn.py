"""What `calibrated` learns from: the examples that it gives to the regressions, and the weights that it takes from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from cgr.records import Probe
from cgr.rules import Calibrated
from cgr.rules.calibrated import GradedTrace
from cgr.rules.history import History, features

BUDGET = 100


@dataclass
class Regression:
    """Notes what it is given, and gives weights that say which regression they are from."""

    given: dict[str, Any] = field(default_factory=dict)

    def logistic(self, values: Sequence[Sequence[float]], good: Sequence[bool]) -> tuple[float, ...]:
        self.given |= {"values": values, "good": good}
        return tuple(float(place) for place in range(len(values[0])))

    def linear(self, values: Sequence[Sequence[float]], saved: Sequence[float]) -> tuple[float, ...]:
        assert values == self.given["values"]
        self.given["saved"] = saved
        return tuple(float(-place) for place in range(len(values[0])))

    def isotonic(self, values: Sequence[float], weights: Sequence[float]) -> Sequence[float]:
        return values


def answered(at: int, certainty: float = 0.5, stated: tuple[int, int] | None = None) -> Probe:
    return Probe(at, "7", certainty, True, stated=stated)


def traces(count: int, stated: tuple[int, int] | None = None) -> list[GradedTrace]:
    """Each has a drought of 20 tokens and one answer at 40, right in the first half of them. Flags may be padded."""
    made = []
    for number in range(count):
        probes = (Probe(20, "1", 0.3, closed=True), answered(40, stated=stated))
        made.append(GradedTrace(probes, (False, number < count // 2, False), final_right=number % 2 == 0, tokens=90))
    return made


def test_an_example_is_good_if_stopping_there_loses_nothing() -> None:
    """Its answer is right, or the final answer is wrong."""
    regression = Regression()
    Calibrated(floor=0.5).learn(traces(20), BUDGET, regression)
    assert regression.given["good"] == [number < 10 or number % 2 == 1 for number in range(20)]
    assert regression.given["saved"] == [0.5] * 20
    assert regression.given["values"] == [features(History(0.5), 40, BUDGET)] * 20


def test_the_learned_rule() -> None:
    """Half of the traces end wrong; all of them had a drought of 20 tokens."""
    learned = Calibrated(floor=0.5, price=0.2).learn(traces(20), BUDGET, Regression())
    weights = tuple(map(float, range(5)))
    assert learned == Calibrated(
        floor=0.5, price=0.2, span=BUDGET, answered=weights, left=tuple(-one for one in weights), hopeless=((0.2, 0.5),)
    )
    assert learned.fit_note.startswith("the features `stated` were left out")


def test_a_drought_is_of_certainties_below_low() -> None:
    learned = Calibrated(floor=0.5, low=0.2).learn(traces(20), BUDGET, Regression())
    assert learned.hopeless == ()


def test_the_share_of_wrong_traces_is_that_of_wrong_final_answers() -> None:
    graded = [GradedTrace(one.probes, one.right, number >= 5, one.tokens) for number, one in enumerate(traces(20))]
    learned = Calibrated(floor=0.5).learn(graded, BUDGET, Regression())
    assert learned.hopeless == ((0.2, round(5.5 / 21, 9)),)


def test_with_fewer_than_twenty_examples_no_weights_are_learned() -> None:
    regression = Regression()
    assert Calibrated(floor=0.5).learn(traces(19), BUDGET, regression) == Calibrated(floor=0.5, span=BUDGET)
    assert regression.given == {}


def test_where_answers_stand_is_used_if_every_example_says_it() -> None:
    regression = Regression()
    learned = Calibrated(floor=0.5).learn(traces(20, stated=(2, 5)), BUDGET, regression)
    assert regression.given["values"] == [features(History(0.5, stated=(2, 5)), 40, BUDGET, stated=True)] * 20
    assert learned.reads_stated
    assert learned.answered == tuple(map(float, range(8)))
    mixed = Calibrated(floor=0.5).learn([*traces(20, stated=(2, 5)), *traces(1)], BUDGET, Regression())
    assert not mixed.reads_stated
