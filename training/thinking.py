"""Synthetic thinking for the arithmetic problems: digit by digit, with mistakes, checks and superfluous checks.

Each line is a chain of small steps, least significant digit first: `864*8=32,51,69;912` says 8*4=32, 8*6+3=51, 8*8+5=69, so
the last three digits are 912. A mistake drops one carry (or borrow), more often in harder steps, and the following steps use
the wrong result. A pass ends in its result and those of the earlier passes. Passes repeat until two agree, and then without
need until enough is written: short problems are checked most often, as reasoning models do.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from cgr.model.problems import Problem, subtractions

MAX_LINES = 45
ENOUGH = (450, 1150)  # characters after which a result that two passes agree on is not checked again, drawn anew each time
WHOLE_LINES = 2  # up to this many lines in a pass, mistakes are as likely as they can be; in longer passes they are rarer
FORCED = 0.1  # share of "Wait"s that look as if they were forced

Step = Callable[[int, int, int], tuple[int, float]]


def think(problem: Problem, rng: random.Random, max_passes: int = 12, mistakes: float = 1.0) -> tuple[list[str], bool]:
    """The thinking as a list of texts that are tokenised one by one, and whether it reached an end.

    Some of the "Wait"s are written as `\\nWait`, a text of its own, as budget forcing does.
    """
    parts: list[str] = []
    results: list[int] = []
    enough = rng.uniform(*ENOUGH)
    for _ in range(max_passes):
        text, result = one_pass(problem, rng, mistakes)
        earlier = ",".join(map(str, dict.fromkeys(results)))
        parts.append(f"{text}So x={result}, last {earlier}.\n\n" if results else f"{text}So x={result}.\n\n")
        agreed = result in results
        if results:
            parts.append("That agrees.\n" if agreed else "That differs.\n")
        results.append(result)
        if agreed and sum(map(len, parts)) > enough:
            return parts, True
        parts.append("\nWait" if rng.random() < FORCED else "Wait")
        parts.append(", once more.\n" if agreed else ", let me check.\n")
    return parts, False


def one_pass(problem: Problem, rng: random.Random, mistakes: float) -> tuple[str, int]:
    """One calculation of the result, as text, and its result."""
    calculator = Calculator(rng, mistakes * min(1.0, WHOLE_LINES / _lines(problem)))
    result = {"map": _map, "product": _product, "gcd": _gcd}[problem.family](problem, calculator)
    if result is None:  # after a mistake, Euclid's algorithm did not end: try again
        return one_pass(problem, rng, mistakes)
    return "".join(calculator.lines), result


def _lines(problem: Problem) -> int:
    """The number of lines of a pass without mistakes; a line of `product` counts as two."""
    if problem.family == "gcd":
        return subtractions(*problem.numbers)
    return problem.numbers[-1] if problem.family == "map" else 2 * len(problem.numbers) - 2


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
    x, factor, shift, count = problem.numbers
    for n in range(1, count + 1):
        first, x = c.times(x, factor)
        second, x = c.plus(x, shift)
        c.lines.append(f"{n}:{first} {second}\n")
    return x


def _product(problem: Problem, c: Calculator) -> int:
    x = problem.numbers[0]
    for factor in problem.numbers[1:]:
        ones, low = c.times(x, factor % 10)
        tens, high = c.times(x, factor // 10)
        total, x = c.plus(low, high * 10 % 1000)
        c.lines.append(f"*{factor}:{ones} {tens} {total}\n")  # the factor leads to the next one in the problem
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
