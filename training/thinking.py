"""Synthetic thinking for the arithmetic problems: digit by digit, with mistakes, checks and superfluous checks.

Each line is a chain of small steps, least significant digit first: `864*8=32,51,69;912` says 8*4=32, 8*6+3=51, 8*8+5=69, so
the last three digits are 912. A mistake drops one carry (or borrow), more often in harder steps, and the following steps use
the wrong result. Passes repeat until two agree, and then often once more without need.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from cgr.model.problems import MAP_STEPS, Problem

MAX_LINES = 20
CHECK_AGAIN = 0.55  # share of agreements that are checked once more without need
FORCED = 0.1  # share of "Wait"s that look as if they were forced

Step = Callable[[int, int, int], tuple[int, float]]


def think(problem: Problem, rng: random.Random, max_passes: int = 12, mistakes: float = 1.0) -> tuple[list[str], bool]:
    """The thinking as a list of texts that are tokenised one by one, and whether it reached an end.

    Some of the "Wait"s are written as `\\nWait`, a text of its own, as budget forcing does.
    """
    parts: list[str] = []
    results: list[int] = []
    for _ in range(max_passes):
        text, result = one_pass(problem, rng, mistakes)
        parts.append(f"{text}So x={result}.\n\n")
        agreed = result in results
        if results:
            parts.append("That agrees.\n" if agreed else "That differs.\n")
        results.append(result)
        if agreed and rng.random() > CHECK_AGAIN:
            return parts, True
        parts.append("\nWait" if rng.random() < FORCED else "Wait")
        parts.append(", once more.\n" if agreed else ", let me check.\n")
    return parts, False


def one_pass(problem: Problem, rng: random.Random, mistakes: float) -> tuple[str, int]:
    """One calculation of the result, as text, and its result."""
    calculator = Calculator(rng, mistakes)
    result = {"map": _map, "product": _product, "gcd": _gcd}[problem.family](problem, calculator)
    if result is None:  # after a mistake, Euclid's algorithm did not end: try again
        return one_pass(problem, rng, mistakes)
    return "".join(calculator.lines), result


class Calculator:
    """Writes three-digit arithmetic digit by digit, with mistakes."""

    def __init__(self, rng: random.Random, mistakes: float) -> None:
        self.rng, self.mistakes, self.lines = rng, mistakes, list[str]()

    def times(self, x: int, k: int) -> tuple[str, int]:
        """The text and the last three digits of x * k, with one digit k."""
        return self._columns(f"{x:03}*{k}", x, k * 111, lambda d, k, c: (d * k + c, _mistake_probability(d * k)))

    def plus(self, x: int, y: int) -> tuple[str, int]:
        """The text and the last three digits of x + y."""
        return self._columns(f"{x:03}+{y:03}", x, y, lambda d, e, c: (d + e + c, 0.02))

    def minus(self, x: int, y: int) -> tuple[str, int]:
        """The text and the result of x - y."""

        def step(d: int, e: int, borrow: int) -> tuple[int, float]:
            rest = d - e - borrow
            return (rest, 0.015) if rest >= 0 else (rest + 20, 0.04)  # the tens digit of 1x marks a borrow

        return self._columns(f"{x:03}-{y:03}", x, y, step)

    def _columns(self, head: str, x: int, y: int, step: Step) -> tuple[str, int]:
        carry, shown, digits = 0, list[str](), list[int]()
        for place in (1, 10, 100):
            d, e = x // place % 10, y // place % 10
            value, probability = step(d, e, carry)
            if carry and self.rng.random() < probability * self.mistakes:
                value, _ = step(d, e, 0)
            shown.append(f"{value:02}")
            digits.append(value % 10)
            carry = value // 10
        result = digits[0] + 10 * digits[1] + 100 * digits[2]
        return f"{head}={','.join(shown)};{result:03}", result


def _mistake_probability(product: int) -> float:
    return 0.16 if product >= 42 else 0.07 if product >= 20 else 0.01


def _map(problem: Problem, c: Calculator) -> int:
    x, factor, shift = problem.numbers
    for n in range(1, MAP_STEPS[problem.level - 1] + 1):
        first, x = c.times(x, factor)
        second, x = c.plus(x, shift)
        c.lines.append(f"{n}:{first} {second}\n")
    return x


def _product(problem: Problem, c: Calculator) -> int:
    x = problem.numbers[0]
    for n, factor in enumerate(problem.numbers[1:], 1):
        ones, low = c.times(x, factor % 10)
        tens, high = c.times(x, factor // 10)
        total, x = c.plus(low, high * 10 % 1000)
        c.lines.append(f"{n}:{ones} {tens} {total}\n")
    return x


def _gcd(problem: Problem, c: Calculator) -> int | None:
    a, b = max(problem.numbers), min(problem.numbers)
    for _ in range(MAX_LINES):
        line, rest = c.minus(a, b)
        c.lines.append(f"{line}\n")
        if rest == 0:
            return b
        a, b = max(b, rest), min(b, rest)
    return None
