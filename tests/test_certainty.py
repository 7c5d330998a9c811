"""Properties of the certainty maths: what must hold for any probabilities."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cgr.certainty import AGGREGATES, DEFAULT, FALLING, aggregate, check, letter_in, of_probe, over_options, probability
from cgr.errors import UnknownName
from cgr.records import Probe

EPSILON = 1e-12
probabilities = st.lists(st.floats(0, 1), min_size=1, max_size=40)
names = st.sampled_from(sorted(AGGREGATES))


def test_the_papers_minimum_is_the_default() -> None:
    assert DEFAULT == "min"
    assert aggregate("min", [0.9, 0.3, 0.99]) == 0.3


@pytest.mark.parametrize(
    ("name", "expected"), [("min", 0.5), ("mean", 0.75), ("product", 0.5), ("geometric-mean", math.sqrt(0.5))]
)
def test_each_aggregate(name: str, expected: float) -> None:
    assert aggregate(name, [0.5, 1.0]) == pytest.approx(expected)


@pytest.mark.parametrize("name", sorted(AGGREGATES))
def test_without_content_there_is_no_certainty(name: str) -> None:
    assert aggregate(name, []) == 0


@given(names, probabilities)
def test_certainty_is_in_the_unit_interval(name: str, values: list[float]) -> None:
    assert 0 <= aggregate(name, values) <= 1


@given(probabilities)
def test_order_of_the_aggregates(values: list[float]) -> None:
    product, least, geometric, mean = (aggregate(name, values) for name in ("product", "min", "geometric-mean", "mean"))
    assert product <= least + EPSILON
    assert least <= geometric + EPSILON
    assert geometric <= mean + EPSILON
    assert mean <= max(values) + EPSILON


@given(names, st.floats(0, 1))
def test_one_token_speaks_for_itself(name: str, value: float) -> None:
    assert aggregate(name, [value]) == pytest.approx(value, abs=EPSILON)


@given(names, probabilities, st.data())
def test_order_of_tokens_does_not_matter(name: str, values: list[float], data: st.DataObject) -> None:
    shuffled = data.draw(st.permutations(values))
    assert aggregate(name, shuffled) == pytest.approx(aggregate(name, values), abs=EPSILON)


@given(names, probabilities, st.data())
def test_a_surer_token_never_lowers_it(name: str, values: list[float], data: st.DataObject) -> None:
    index = data.draw(st.integers(0, len(values) - 1))
    surer = [*values]
    surer[index] = data.draw(st.floats(values[index], 1))
    assert aggregate(name, surer) >= aggregate(name, values) - EPSILON


@given(st.sampled_from(sorted(FALLING)), probabilities, st.floats(0, 1))
def test_one_more_token_only_lowers_the_falling_ones(name: str, values: list[float], more: float) -> None:
    """What makes the probe's short cut exact."""
    assert aggregate(name, [*values, more]) <= aggregate(name, values)


@pytest.mark.parametrize("name", sorted(AGGREGATES.keys() - FALLING))
def test_the_others_may_rise_again(name: str) -> None:
    assert aggregate(name, [0.5, 1.0]) > aggregate(name, [0.5])


@given(names, st.lists(st.floats(0, 1), max_size=10), st.lists(st.floats(0, 1), max_size=10))
def test_an_impossible_token_spoils_all_but_the_mean(name: str, before: list[float], after: list[float]) -> None:
    value = aggregate(name, [*before, 0.0, *after])
    assert value == 0 or name == "mean"


@given(st.floats(-800, 1e-3))
def test_a_log_probability_as_a_probability(logprob: float) -> None:
    assert 0 <= probability(logprob) <= 1
    assert probability(logprob) == pytest.approx(min(math.exp(logprob), 1))


def test_an_unknown_aggregate_suggests_the_nearest() -> None:
    with pytest.raises(UnknownName, match="no aggregate called 'minimum'") as caught:
        check("minimum")
    assert "Did you mean 'min'?" in caught.value.hint


OPTIONED = Probe(0, "(B)", 0.5, True, (0.9, 0.5), options=(("A", 0.1), ("B", 0.3)))


@pytest.mark.parametrize(
    ("name", "probe", "certainty"),
    [
        ("options", OPTIONED, 0.75),
        ("min", OPTIONED, 0.5),
        ("options", replace(OPTIONED, answer="C"), 0.5),
        ("options", replace(OPTIONED, options=()), 0.5),
        ("options", replace(OPTIONED, options=(("B", 0.0),)), 0.5),
        ("mean", replace(OPTIONED, answer="x"), 0.7),
    ],
)
def test_certainty_over_the_options(name: str, probe: Probe, certainty: float) -> None:
    assert of_probe(name, probe) == pytest.approx(certainty)


@pytest.mark.parametrize(
    ("answer", "letter"),
    [
        ("B", "B"),
        (" b ", "B"),
        ("(B)", "B"),
        ("B.", "B"),
        ("B) because\nof x", "B"),
        ("$B$", "B"),
        (" $ B $ ", "B"),
        ("12", None),
        ("", None),
        ("BC", None),
        ("X$B", None),
        ("Because", None),
    ],
)
def test_the_letter_of_an_answer(answer: str, letter: str | None) -> None:
    assert letter_in(answer) == letter


def test_certainty_over_options() -> None:
    options = (("A", 0.1), ("B", 0.3))
    assert over_options("(B)", options) == pytest.approx(0.75)
    assert over_options("C", options) is None
    assert over_options("12", (("XXXX", 1.0),)) is None
    assert over_options("A", (("A", 0.0), ("B", 0.0))) is None


def test_no_certainty_is_above_one_where_probabilities_are_by_rounding() -> None:
    """An import allows probabilities that rounding has lifted above 1."""
    above = (1 + 1e-9, 1 + 1e-9)
    assert aggregate("mean", above) == 1.0
    assert aggregate("geometric-mean", above) == 1.0
    assert over_options("A", (("A", 1.0), ("B", -1e-9))) == 1.0
