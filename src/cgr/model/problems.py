"""The arithmetic problems that the embedded model was trained to think about.

Three families, six levels each, every answer an integer 0..999. The sixth level of two families is too long to finish
within the model's budget: there is nothing to do but to say so. A problem whose text hashes into the held-out
twentieth is never trained on: `unseen` yields only those, so figures taken on them are figures on unseen problems.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from dataclasses import dataclass
from math import gcd

FAMILIES = ("map", "product", "gcd")
LEVELS = (1, 2, 3, 4, 5, 6)
_FACTORS = (2, 3, 4, 6, 7, 8, 9)  # five would send every start to the same few ends
MAP = (1, 2, 3, 4, 5, 45)  # applications at each level
_PRODUCT = (1, 1, 2, 2, 3, 24)  # factors at each level: a line of this family is twice as long as of the others
GCD = (2, 4, 5, 6, 7, 8)  # lines at each level, or one more
_PATIENCE = 1000  # draws after which a kind of problem counts as used up: some have a few dozen held-out texts
_HARD = 2  # from this level on, digits are 6 to 9 where they can be: more and larger carries


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem: what is asked, what is true, and the numbers it was made from."""

    family: str
    level: int
    text: str
    answer: int
    numbers: tuple[int, ...]


def make(family: str, level: int, rng: random.Random) -> Problem:
    """A random problem of this family and level."""
    return _MAKERS[family](level, rng)


def is_held_out(text: str) -> bool:
    """Whether this text belongs to the twentieth that training never sees."""
    return hashlib.sha256(text.encode()).digest()[0] % 20 == 0


def unseen(seed: int = 0, families: tuple[str, ...] = FAMILIES, levels: tuple[int, ...] = LEVELS) -> Iterator[Problem]:
    """A seeded run of distinct held-out problems, families and levels in turn; a kind that is used up is left out."""
    rng = random.Random(f"unseen:{seed}")
    kinds = [(family, level) for level in levels for family in families]
    seen: set[str] = set()
    while kinds:
        for kind in tuple(kinds):
            if problem := _fresh(*kind, rng, seen):
                seen.add(problem.text)
                yield problem
            else:
                kinds.remove(kind)


def _fresh(family: str, level: int, rng: random.Random, seen: set[str]) -> Problem | None:
    drawn = (make(family, level, rng) for _ in range(_PATIENCE))
    return next((problem for problem in drawn if problem.text not in seen and is_held_out(problem.text)), None)


def _map(level: int, rng: random.Random) -> Problem:
    start, factor, shift = (
        rng.randint(100, 999),
        rng.choice(_FACTORS[3:] if level >= _HARD else _FACTORS),
        rng.randint(11, 99),
    )
    x = start
    count = MAP[level - 1]
    for _ in range(count):
        x = (factor * x + shift) % 1000
    times = f"{count} times" if count > 1 else "1 time"
    text = f"Start with x={start}. Apply x=({factor}x+{shift}) mod 1000, {times}. Find x."
    return Problem("map", level, text, x, (start, factor, shift))


def _product(level: int, rng: random.Random) -> Problem:
    numbers = (_unit(101, 999, rng), *(_factor(level, rng) for _ in range(_PRODUCT[level - 1])))
    x = 1
    for number in numbers:
        x = x * number % 1000
    text = f"Find x, the last three digits of {'*'.join(map(str, numbers))}."
    return Problem("product", level, text, x, numbers)


def _factor(level: int, rng: random.Random) -> int:
    if level < _HARD:
        return _unit(12, 99, rng)
    return 10 * rng.randint(6, 9) + rng.choice((7, 9))


def _unit(low: int, high: int, rng: random.Random) -> int:
    """A number coprime to ten: twos and fives would pile up into trailing zeros, which can be guessed."""
    while True:
        number = rng.randint(low, high)
        if gcd(number, 10) == 1:
            return number


def _gcd(level: int, rng: random.Random) -> Problem:
    """Numbers whose Euclid by subtraction takes this many lines; divisors are spread so that none can be guessed."""
    lines = GCD[level - 1]
    while True:
        divisor = rng.randint(3, 240)
        top = 999 // divisor
        if top < 3:
            continue
        a, b = divisor * rng.randint(2, top), divisor * rng.randint(2, top)
        if gcd(a, b) == divisor and a != b and subtractions(a, b) in (lines, lines + 1):
            text = f"Find x, the greatest common divisor of {a} and {b}."
            return Problem("gcd", level, text, divisor, (a, b))


def subtractions(a: int, b: int) -> int:
    """How many lines Euclid's algorithm takes when it only subtracts, down to zero."""
    lines = 0
    while b:
        lines += a // b
        a, b = b, a % b
    return lines


_MAKERS = {"map": _map, "product": _product, "gcd": _gcd}
