"""The arithmetic problems that the embedded model was trained on.

There are three families with six levels each. Every answer is an integer from 0 to 999. The thinking that a problem needs
grows with its level, from about 30 to 800 tokens. Level six of `map` is too long to finish within the model's budget, so
that the right reaction is to abstain. One problem in twenty, chosen by a hash of its text, is held out from training;
`unseen` yields only those.
"""

from __future__ import annotations

import hashlib
import random
import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from math import gcd

FAMILIES = ("map", "product", "gcd")
LEVELS = (1, 2, 3, 4, 5, 6)
_MULTIPLIERS = (2, 3, 4, 6, 7, 8, 9)  # without 5, which would lead every start to the same few results
LENGTHS = {  # by level
    "map": (1, 2, 6, 14, 20, 70),  # applications of the map; one takes about 40 tokens
    "product": (1, 2, 3, 5, 7, 10),  # factors; one takes about 60 tokens
    "gcd": (3, 5, 7, 10, 16, 24),  # subtractions, or one more; one takes about 20 tokens
}
_LEAST_DIVISOR, _MOST_DIVISOR = 3, 240
_MAX_DRAWS = 1000  # after this many draws without a new text, a kind of problem is exhausted; some have a few dozen texts
# The form of each family: its words, and numbers with as many digits as those that the model was trained on. A question in
# none of these forms is none that the model knows.
_MAP = r"Start with x=[1-9]\d\d\. Apply x=\([2-9]x\+[1-9]\d\) mod 1000, (1 time|[1-9]\d? times)\. Find x\."
_PRODUCT = r"Find x, the last three digits of [1-9]\d\d(\*[1-9]\d)+\."
_GCD = r"Find x, the greatest common divisor of [1-9]\d{0,2} and [1-9]\d{0,2}\."
FORM = re.compile(f"(?P<map>{_MAP})|(?P<product>{_PRODUCT})|(?P<gcd>{_GCD})", re.ASCII)
_HARD_LEVEL = 2  # from this level on, digits are 6 to 9 where possible: more and larger carries


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem: its text, its correct answer, and the numbers in it."""

    family: str
    level: int
    text: str
    answer: int
    numbers: tuple[int, ...]


def make_problem(family: str, level: int, rng: random.Random, length: int | None = None) -> Problem:
    """A random problem of this family and level. `length`: applications, factors or subtractions."""
    length = length or LENGTHS[family][level - 1]
    return _MAKERS[family](level, length, rng)


def is_held_out(text: str) -> bool:
    """Whether the problem with this text is held out from training."""
    return hashlib.sha256(text.encode()).digest()[0] % 20 == 0


def unseen(seed: int = 0, families: tuple[str, ...] = FAMILIES, levels: tuple[int, ...] = LEVELS) -> Iterator[Problem]:
    """Distinct held-out problems for a seed, families and levels in turn; an exhausted kind is left out."""
    rng = random.Random(f"unseen:{seed}")
    kinds = [(family, level) for level in levels for family in families]
    seen: set[str] = set()
    while kinds:
        for kind in tuple(kinds):
            if problem := _new_problem(*kind, rng, seen):
                seen.add(problem.text)
                yield problem
            else:
                kinds.remove(kind)


def _new_problem(family: str, level: int, rng: random.Random, seen: set[str]) -> Problem | None:
    drawn = (make_problem(family, level, rng) for _ in range(_MAX_DRAWS))
    return next((problem for problem in drawn if problem.text not in seen and is_held_out(problem.text)), None)


def _map(level: int, count: int, rng: random.Random) -> Problem:
    start = rng.randint(100, 999)
    factor = rng.choice(_MULTIPLIERS[3:] if level >= _HARD_LEVEL else _MULTIPLIERS)
    shift = rng.randint(11, 99)
    x = start
    for _ in range(count):
        x = (factor * x + shift) % 1000
    times = f"{count} times" if count > 1 else "1 time"
    text = f"Start with x={start}. Apply x=({factor}x+{shift}) mod 1000, {times}. Find x."
    return Problem("map", level, text, x, (start, factor, shift, count))


def _product(level: int, count: int, rng: random.Random) -> Problem:
    factors: list[int] = []  # all different, so that each one names its place in the product
    while len(factors) < count:
        factor = _coprime_to_ten(12, 99, rng)
        factors += [factor] if factor not in factors else []
    numbers = (_coprime_to_ten(101, 999, rng), *factors)
    x = 1
    for number in numbers:
        x = x * number % 1000
    text = f"Find x, the last three digits of {'*'.join(map(str, numbers))}."
    return Problem("product", level, text, x, numbers)


def _coprime_to_ten(low: int, high: int, rng: random.Random) -> int:
    """A random number coprime to ten: factors of two and five would give trailing zeros, which are easy to guess."""
    while True:
        number = rng.randint(low, high)
        if gcd(number, 10) == 1:
            return number


def _gcd(level: int, lines: int, rng: random.Random) -> Problem:
    """Two numbers for which Euclid's algorithm by subtraction takes so many lines, or one more; the divisor varies widely,
    so that it cannot be guessed."""
    pairs = _coprime_pairs(lines + rng.randint(0, 1))
    divisor = rng.randint(_LEAST_DIVISOR, min(_MOST_DIVISOR, 999 // pairs[0][0]))
    p, q = pairs[rng.randrange(bisect_right(pairs, 999 // divisor, key=lambda pair: pair[0]))]
    a, b = rng.sample((divisor * p, divisor * q), 2)
    text = f"Find x, the greatest common divisor of {a} and {b}."
    return Problem("gcd", level, text, divisor, (a, b))


@cache
def _coprime_pairs(lines: int) -> list[tuple[int, int]]:
    """The coprime pairs (p, q) with p > q > 1 that take so many subtractions, by p."""
    top = 999 // _LEAST_DIVISOR
    return [(p, q) for p in range(3, top + 1) for q in range(2, p) if subtractions(p, q) == lines and gcd(p, q) == 1]


def subtractions(a: int, b: int) -> int:
    """The number of subtractions of Euclid's algorithm by subtraction, until zero."""
    lines = 0
    while b:
        lines += a // b
        a, b = b, a % b
    return lines


_MAKERS = {"map": _map, "product": _product, "gcd": _gcd}
