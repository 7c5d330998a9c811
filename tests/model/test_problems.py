from __future__ import annotations

import random
from itertools import islice
from math import gcd

import pytest

from cgr.model.problems import (
    FAMILIES,
    FORM,
    LENGTHS,
    LEVELS,
    is_held_out,
    make_problem,
    subtractions,
    unseen,
)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("level", LEVELS)
def test_every_family_and_level_has_integer_answers_of_at_most_three_digits(family: str, level: int) -> None:
    rng = random.Random(level)
    for problem in (make_problem(family, level, rng) for _ in range(20)):
        assert 0 <= problem.answer <= 999
        assert (problem.family, problem.level) == (family, level)


def test_the_answers_are_correct() -> None:
    rng = random.Random(1)
    for level in LEVELS:
        start, factor, shift, count = (mapped := make_problem("map", level, rng)).numbers
        for _ in range(count):
            start = (start * factor + shift) % 1000
        assert (mapped.answer, count) == (start, LENGTHS["map"][level - 1])
        product = make_problem("product", level, rng)
        whole = 1
        for number in product.numbers:
            whole *= number
        assert product.answer == whole % 1000
        assert len(set(product.numbers[1:])) == len(product.numbers) - 1 == LENGTHS["product"][level - 1]
        divided = make_problem("gcd", level, rng)
        assert divided.answer == gcd(*divided.numbers)
        assert subtractions(*divided.numbers) in (LENGTHS["gcd"][level - 1], LENGTHS["gcd"][level - 1] + 1)


def test_unseen_problems_are_distinct_held_out_and_the_same_for_a_seed() -> None:
    first = list(islice(unseen(3), 60))
    assert first == list(islice(unseen(3), 60))
    assert len({problem.text for problem in first}) == 60
    assert all(is_held_out(problem.text) for problem in first)
    assert {(p.family, p.level) for p in first} == {(f, n) for f in FAMILIES for n in LEVELS}
    assert [p.text for p in islice(unseen(4), 60)] != [p.text for p in first]


def test_an_exhausted_kind_of_problem_is_left_out() -> None:
    """Level 1 of gcd has a few dozen held-out texts: a long sequence continues without it."""
    many = list(islice(unseen(0, ("gcd", "map"), (1,)), 300))
    assert len({problem.text for problem in many}) == 300
    assert sum(problem.family == "gcd" for problem in many) < 150
    assert many[-1].family == many[-2].family == "map"


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("level", LEVELS)
def test_a_problem_is_of_its_family_by_form(family: str, level: int) -> None:
    rng = random.Random(level)
    for _ in range(50):
        found = FORM.fullmatch(make_problem(family, level, rng).text)
        assert found is not None
        assert found[family]


@pytest.mark.parametrize(
    "question",
    [
        "What is 17 times 23?",
        "",
        "Find x, the greatest common divisor of 1234 and 12.",
        "Find x, the greatest common divisor of 12 and 18. Then add 1.",
        "Find x, the last three digits of 317.",
        "Find x, the last three digits of 317*123.",
        "Start with x=864. Apply x=(8x+97) mod 100, 2 times. Find x.",
        "Start with x=864. Apply x=(18x+97) mod 1000, 2 times. Find x.",
        "Start with x=864. Apply x=(8x+97) mod 1000, 2 times. Find x. Please.",
        "Start with x=٨64. Apply x=(8x+97) mod 1000, 2 times. Find x.",
    ],
)
def test_other_questions_are_of_no_family(question: str) -> None:
    assert FORM.fullmatch(question) is None
