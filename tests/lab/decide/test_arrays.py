"""Decisions over arrays, compared in full with values computed by hand. `test_array_forms` compares them with the loop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

import numpy as np
import pytest

from cgr.errors import NotRecorded
from cgr.lab.decide.arrays import (
    Decisions,
    ProbeArrays,
    at_budget,
    at_end,
    decide_arrays,
    first_sure,
    first_true,
)
from cgr.lab.decide.columns import Columns
from cgr.lab.store.recorded import RecordedTrace, RunInfo
from cgr.lab.types import Bools
from cgr.probing import ProbeSpec, ProbeStyle
from cgr.records import Ended
from cgr.rules import Rule
from cgr.rules.actions import ArrayDecisions
from tests.lab.runs import trace

INFO = RunInfo("made", "none", "none", 60, 10)
HINT = "Record it with `cgr probe`, or use a rule and a threshold that the recording can decide."


def recorded(
    question: str, seed: int, length: int, final: tuple[str, float], asked: Sequence[tuple[str, float]], budget: int = 60
) -> RecordedTrace:
    """A trace with the gold answer 7 and a probe every 10 tokens; each probe pays 2 tokens after a suffix of 3."""
    ended: Ended = "budget" if length == budget else "end_of_thinking"
    made = [(10 * number, answer, (level,), True) for number, (answer, level) in enumerate(asked, 1)]
    one = trace(question, seed, "7", length, ended, final, made, budget=budget)
    return replace(one, probes=tuple(replace(made, suffix_ids=(1, 2, 3)) for made in one.probes))


def three() -> list[RecordedTrace]:
    """One to the budget of 60, one that ends, and one with a budget of its own."""
    return [
        recorded("a", 0, 60, ("7", 0.5), [("8", 0.2), ("7", 0.6), ("7", 0.9), ("8", 0.95), ("7", 0.99)]),
        recorded("a", 1, 25, ("8", 0.4), [("7", 0.3), ("8", 0.8)]),
        recorded("b", 4, 40, ("7", 0.7), [("7", 0.1), ("7", 0.5), ("8", 0.75)], budget=40),
    ]


def changed(traces: Sequence[RecordedTrace], row: int, index: int, **fields: Any) -> list[RecordedTrace]:
    """These traces with other fields of one probe."""
    probes = list(traces[row].probes)
    probes[index] = replace(probes[index], **fields)
    return [replace(one, probes=tuple(probes)) if number == row else one for number, one in enumerate(traces)]


def without(traces: Sequence[RecordedTrace], row: int, *places: int) -> list[RecordedTrace]:
    """These traces without the probes of one of them at some positions."""
    kept = tuple(one for one in traces[row].probes if one.at not in places)
    return [replace(one, probes=kept) if number == row else one for number, one in enumerate(traces)]


def flags(*places: tuple[int, int]) -> Bools:
    """Three traces by five probes, True in these places."""
    found = np.zeros((3, 5), dtype=np.bool_)
    for place in places:
        found[place] = True
    return found


def values(decided: Decisions) -> dict[str, list[Any]]:
    return {one.name: getattr(decided, one.name).tolist() for one in fields(decided)}


AT_END: dict[str, list[Any]] = {
    "at": [60, 25, 40],
    "sure": [False, False, False],
    "certainty": [0.5, 0.4, 0.7],
    "closed": [True, True, True],
    "right": [True, False, True],
    "probe_tokens": [0, 0, 0],
    "suffix_tokens": [0, 0, 0],
    "gave_up": [False, False, False],
    "agrees": [True, True, True],
}


@dataclass(frozen=True, kw_only=True)
class Given(Rule):
    """A rule that decides what it is told. `sure`: see `Rule.sure_at`."""

    found: ArrayDecisions | None = None
    sure: float | None = None
    name: ClassVar[str] = "given"

    def decide_all(self, recorded: Any) -> ArrayDecisions | None:
        return self.found

    @property
    def sure_at(self) -> float | None:
        return self.sure


@dataclass(frozen=True, kw_only=True)
class Product(Given):
    style: ClassVar[ProbeStyle] = ProbeStyle(aggregate="product")


@dataclass(frozen=True, kw_only=True)
class Mean(Given):
    style: ClassVar[ProbeStyle] = ProbeStyle(aggregate="mean")


@dataclass(frozen=True, kw_only=True)
class Entropy(Given):
    style: ClassVar[ProbeStyle] = ProbeStyle("\n", reads="entropy")


def arrays(traces: Sequence[RecordedTrace], answers: Sequence[RecordedTrace] | None = None) -> ProbeArrays:
    closed = None if answers is None else Columns.of(answers, INFO)
    return ProbeArrays(Columns.of(traces, INFO), ProbeSpec(), lambda whole: traces, closed)


def decided(found: ArrayDecisions | None, traces: Sequence[RecordedTrace] | None = None) -> Decisions:
    return decide_arrays(Given(found=found), arrays(three() if traces is None else traces))


def test_a_rule_that_never_intervenes_is_the_baseline() -> None:
    found = at_end(Columns.of(three(), INFO))
    assert values(found) == values(decided(None)) == AT_END
    assert found.probe_tokens.dtype == found.suffix_tokens.dtype == np.int64
    assert found.sure.dtype == found.gave_up.dtype == np.bool_
    assert found.fired == 0


def test_a_rule_without_probes_gives_up_from_token_0_on() -> None:
    assert values(decided(ArrayDecisions(given_up_at=np.array([0, -1, 33])))) == AT_END | {
        "at": [0, 25, 33],
        "certainty": [0.0, 0.4, 0.0],
        "closed": [False, True, False],
        "right": [False, False, False],
        "gave_up": [True, False, True],
        "agrees": [False, True, False],
    }


SECOND_AND_LATER = flags((0, 1), (0, 2), (0, 3), (0, 4), (1, 1), (2, 1), (2, 2))


def test_the_first_stop_or_giving_up_decides_and_probes_up_to_it_are_paid() -> None:
    """The first trace stops with its second probe, the second one ends, and the third one is given up."""
    found = ArrayDecisions(SECOND_AND_LATER, flags((0, 2), (0, 3), (2, 2)), flags((0, 3), (2, 1)))
    made = decided(found)
    assert values(made) == {
        "at": [30, 25, 20],
        "sure": [True, False, False],
        "certainty": [0.9, 0.4, 0.5],
        "closed": [True, True, True],
        "right": [True, False, False],
        "probe_tokens": [4, 2, 2],
        "suffix_tokens": [6, 3, 3],
        "gave_up": [False, False, True],
        "agrees": [True, True, False],
    }
    assert made.fired == 1


def test_a_stop_wins_over_giving_up_at_the_same_probe() -> None:
    made = decided(ArrayDecisions(SECOND_AND_LATER, flags((0, 3)), flags((0, 3))))
    assert (made.at.tolist(), made.sure.tolist()) == ([40, 25, 40], [True, False, False])
    assert (made.gave_up.tolist(), made.right.tolist()) == ([False] * 3, [False, False, True])
    assert made.agrees.tolist() == [False, True, True]


def test_the_certainty_of_a_stop_is_under_the_aggregate_of_the_rule() -> None:
    traces = changed(three(), 0, 1, probabilities=(0.6, 0.5))
    found = ArrayDecisions(SECOND_AND_LATER, flags((0, 1)), flags())
    assert decide_arrays(Given(found=found), arrays(traces)).certainty.tolist() == [0.6, 0.4, 0.7]
    assert decide_arrays(Product(found=found), arrays(traces)).certainty.tolist() == [0.3, 0.4, 0.7]


def test_the_answer_after_a_stop_is_that_with_the_thinking_closed_and_is_paid_too() -> None:
    """Of the answers only that at the stop is paid; none where the rule gave up or nothing stopped it."""
    answers = [
        replace(one, probes=tuple(replace(p, answer="9", certainty=0.35, decoded=7) for p in one.probes)) for one in three()
    ]
    answers = changed(answers, 0, 2, answer="7", certainty=0.55, decoded=11, suffix_ids=(1,) * 13)
    found = ArrayDecisions(SECOND_AND_LATER, flags((0, 2)), flags((2, 1)))
    assert values(decide_arrays(Given(found=found), arrays(three(), answers))) == {
        "at": [30, 25, 20],
        "sure": [True, False, False],
        "certainty": [0.55, 0.4, 0.35],
        "closed": [True, True, True],
        "right": [True, False, False],
        "probe_tokens": [4 + 11, 2, 2],
        "suffix_tokens": [6 + 13, 3, 3],
        "gave_up": [False, False, True],
        "agrees": [True, True, False],
    }


# What was not recorded

ALL = flags(*((0, place) for place in range(5)), (1, 0), (1, 1), (2, 0), (2, 1), (2, 2))
CUT = changed(three(), 1, 1, closed=False, bound=True)
CUT_MESSAGE = "Question 'a', seed 1: the end of the probe at token 20 (its certainty is at most 0.8) was not recorded."


@pytest.mark.parametrize(
    "rule",
    [
        Given(found=ArrayDecisions(ALL, flags(), flags())),
        Given(found=ArrayDecisions(ALL, flags((1, 1)), flags())),
        Given(found=ArrayDecisions(ALL, flags(), flags((1, 1)))),
        Given(found=ArrayDecisions(ALL, flags(), flags()), sure=0.8),
        Given(found=ArrayDecisions(ALL, flags(), flags(), whole=flags((1, 1))), sure=0.81),
        Mean(found=ArrayDecisions(ALL, flags(), flags()), sure=0.81),
    ],
)
def test_a_probe_that_was_cut_short_and_may_change_the_decision_is_named(rule: Rule) -> None:
    with pytest.raises(NotRecorded) as caught:
        decide_arrays(rule, arrays(CUT))
    assert (caught.value.message, caught.value.hint) == (CUT_MESSAGE, HINT)


@pytest.mark.parametrize(
    "rule",
    [
        Given(found=ArrayDecisions(ALL, flags(), flags()), sure=0.81),
        Product(found=ArrayDecisions(ALL, flags(), flags()), sure=0.81),
        Given(found=ArrayDecisions(ALL, flags(), flags(), whole=flags((1, 0), (0, 1))), sure=0.81),
        Given(found=ArrayDecisions(flags((1, 0)), flags(), flags())),
        Given(found=ArrayDecisions(ALL, flags((1, 0)), flags())),
        Given(found=ArrayDecisions(ALL, flags(), flags((1, 0)))),
        Entropy(found=ArrayDecisions(ALL, flags(), flags())),
    ],
)
def test_a_probe_that_was_cut_short_does_not_matter_where_it_changes_nothing(rule: Rule) -> None:
    """Too uncertain, not made, after the stop, or read for its entropy only."""
    assert decide_arrays(rule, arrays(CUT)).at.tolist()[0::2] == [60, 40]


@pytest.mark.parametrize(
    ("missing_at", "stops", "message"),
    [
        ([-1, 5, 0], flags(), "Question 'a', seed 1: a probe at token 5 was not recorded."),
        ([-1, 5, 0], flags((1, 1)), "Question 'b', seed 4: a probe at token 0 was not recorded."),
        ([-1, 0, 5], flags(), "Question 'a', seed 1: a probe at token 0 was not recorded."),
        ([-1, 5, 0], flags((1, 0), (2, 2)), None),
        ([-1, -1, -1], flags(), None),
    ],
)
def test_a_position_that_was_not_probed_matters_unless_the_trace_stopped(
    missing_at: list[int], stops: Bools, message: str | None
) -> None:
    found = ArrayDecisions(ALL, stops, flags(), missing_at=np.array(missing_at))
    if message is None:
        assert decided(found).sure.tolist() == stops.any(axis=1).tolist()
        return
    with pytest.raises(NotRecorded) as caught:
        decided(found)
    assert (caught.value.message, caught.value.hint) == (message, HINT)


SHORT = [three()[0], recorded("a", 1, 20, ("8", 0.4), [("7", 0.3)]), three()[2]]


@pytest.mark.parametrize(
    ("traces", "stops", "interval", "missing"),
    [
        (three(), flags(), 10, None),
        (three(), flags(), 20, None),
        (without(three(), 1, 20), flags(), 10, "'a', seed 1: a probe at token 20"),
        (without(three(), 1, 10, 20), flags(), 10, "'a', seed 1: a probe at token 10"),
        (without(three(), 1, 10), flags(), 20, None),
        (SHORT, flags(), 10, "'a', seed 1: a probe at token 20"),
        (without(three(), 2, 30), flags(), 10, "'b', seed 4: a probe at token 30"),
        (without(three(), 0, 50), flags((0, 2)), 10, None),
        (without(three(), 0, 50), flags(), 10, "'a', seed 0: a probe at token 50"),
        (three(), flags(), 7, "'a', seed 0: a probe at token 7"),
    ],
)
def test_on_a_grid_every_multiple_up_to_the_stop_and_below_the_budget_must_be_probed(
    traces: list[RecordedTrace], stops: Bools, interval: int, missing: str | None
) -> None:
    made = Columns.of(traces, INFO).present
    found = ArrayDecisions(made, stops[:, : made.shape[1]], flags()[:, : made.shape[1]], interval)
    if missing is None:
        assert decided(found, traces).sure.tolist() == stops.any(axis=1).tolist()
        return
    with pytest.raises(NotRecorded) as caught:
        decided(found, traces)
    assert (caught.value.message, caught.value.hint) == (f"Question {missing} was not recorded.", HINT)


def test_all_recorded_probes_stop_from_the_threshold_on() -> None:
    columns = Columns.of(CUT, INFO)
    assert values(first_sure(columns, 0.9)) == AT_END | {
        "at": [30, 25, 40],
        "sure": [True, False, False],
        "certainty": [0.9, 0.4, 0.7],
        "probe_tokens": [6, 4, 6],
        "suffix_tokens": [9, 6, 9],
    }
    assert first_sure(columns, 0.91).at.tolist() == [40, 25, 40]
    with pytest.raises(NotRecorded) as caught:
        first_sure(columns, 0.8)
    assert (caught.value.message, caught.value.hint) == (CUT_MESSAGE, HINT)
    assert first_sure(columns, 0.0).at.tolist() == [10, 10, 10]


def test_the_first_true_column_is_a_whole_number() -> None:
    found, empty = first_true(flags((0, 1), (0, 3), (2, 0))), first_true(np.zeros((2, 0), dtype=np.bool_))
    assert (found.tolist(), empty.tolist()) == ([1, 5, 0], [0, 0])
    assert found.dtype == empty.dtype == np.int64


# A smaller budget


def test_a_smaller_budget_is_answered_by_the_probe_there_or_by_an_earlier_end() -> None:
    """A trace that ended exactly at the budget is answered by the probe there."""
    ending = recorded("c", 0, 20, ("8", 0.1), [("8", 0.3), ("7", 0.8)])
    columns = Columns.of([three()[0], ending], INFO)
    expected = {
        "at": [20, 20],
        "sure": [False, False],
        "certainty": [0.6, 0.8],
        "closed": [True, True],
        "right": [True, True],
        "probe_tokens": [0, 0],
        "suffix_tokens": [0, 0],
        "gave_up": [False, False],
        "agrees": [True, False],
    }
    assert values(at_budget(columns, 20)) == expected
    after = at_budget(columns, 30)
    assert (after.at.tolist(), after.certainty.tolist()) == ([30, 20], [0.9, 0.1])
    for budget in (60, 61):
        assert values(at_budget(columns, budget)) == values(at_end(columns))


@pytest.mark.parametrize(
    ("budget", "what"),
    [
        (20, "the end of the probe at token 20 (its certainty is at most 0.8)"),
        (15, "a probe at token 15"),
    ],
)
def test_a_smaller_budget_needs_a_whole_probe_in_every_trace_that_was_still_thinking(budget: int, what: str) -> None:
    ended = recorded("c", 0, 9, ("7", 0.9), [])
    with pytest.raises(NotRecorded) as caught:
        at_budget(Columns.of([ended, *CUT[1:]], INFO), budget)
    assert caught.value.message == f"Question 'a', seed 1: {what} was not recorded."
    assert caught.value.hint == HINT


# The arrays that rules read


@pytest.mark.parametrize(
    ("interval", "given", "found"),
    [(0, None, True), (1, None, False), (10, None, False), (10, True, True), (0, False, False)],
)
def test_without_an_interval_the_positions_are_irregular_unless_said_otherwise(
    interval: int, given: bool | None, found: bool
) -> None:
    columns = Columns.of(three(), replace(INFO, interval=interval))
    assert ProbeArrays(columns, ProbeSpec(), lambda whole: three(), irregular=given).irregular is found
