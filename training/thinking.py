"""Written-out thinking for the arithmetic problems: digit by digit, with slips, checks and over-checks.

Each line is a chain of small sure steps, least significant digit first: `864*8=32,51,69;912` says 8*4=32, 8*6+3=51,
8*8+5=69, so the last three digits are 912. A slip drops one carry (or borrow), likelier where the step is harder, and all
that follows is computed from it, as a person would. Passes repeat until two agree, and then often once more for nothing.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from cgr.model.problems import MAP_STEPS, Problem

MAX_LINES = 20
CHECK_ON = 0.55  # how often an agreement is checked once more for nothing
FORCED = 0.1  # how many of the "Wait"s look forced

Step = Callable[[int, int, int], tuple[int, float]]


def think(problem: Problem, rng: random.Random, max_passes: int = 12, slips: float = 1.0) -> tuple[list[str], bool]:
    """The text inside the think tags, in the pieces it is tokenised by, and whether it ended by itself.

    A few of the "Wait"s come as `\\nWait`, a piece of its own, which is how budget forcing puts it.
    """
    parts: list[str] = []
    results: list[int] = []
    for _ in range(max_passes):
        text, result = one_pass(problem, rng, slips)
        parts.append(f"{text}So x={result}.\n\n")
        agreed = result in results
        if results:
            parts.append("That agrees.\n" if agreed else "That differs.\n")
        results.append(result)
        if agreed and rng.random() > CHECK_ON:
            return parts, True
        parts.append("\nWait" if rng.random() < FORCED else "Wait")
        parts.append(", once more.\n" if agreed else ", let me check.\n")
    return parts, False


def one_pass(problem: Problem, rng: random.Random, slips: float) -> tuple[str, int]:
    """One way through the problem, from its numbers to a result."""
    worker = Worker(rng, slips)
    result = {"map": _map, "product": _product, "gcd": _gcd}[problem.family](problem, worker)
    if result is None:  # a slip led Euclid nowhere: think again
        return one_pass(problem, rng, slips)
    return "".join(worker.lines), result


class Worker:
    """Does three-digit arithmetic on paper, and slips."""

    def __init__(self, rng: random.Random, slips: float) -> None:
        self.rng, self.slips, self.lines = rng, slips, list[str]()

    def times(self, x: int, k: int) -> tuple[str, int]:
        return self._columns(f"{x:03}*{k}", x, k * 111, lambda d, k, c: (d * k + c, _hardness(d * k)))

    def plus(self, x: int, y: int) -> tuple[str, int]:
        return self._columns(f"{x:03}+{y:03}", x, y, lambda d, e, c: (d + e + c, 0.02))

    def minus(self, x: int, y: int) -> tuple[str, int]:
        def step(d: int, e: int, borrow: int) -> tuple[int, float]:
            rest = d - e - borrow
            return (rest, 0.015) if rest >= 0 else (rest + 20, 0.04)  # the tens digit of 1x marks a borrow

        return self._columns(f"{x:03}-{y:03}", x, y, step)

    def _columns(self, head: str, x: int, y: int, step: Step) -> tuple[str, int]:
        carry, shown, digits = 0, list[str](), list[int]()
        for place in (1, 10, 100):
            d, e = x // place % 10, y // place % 10
            value, slip = step(d, e, carry)
            if carry and self.rng.random() < slip * self.slips:
                value, _ = step(d, e, 0)
            shown.append(f"{value:02}")
            digits.append(value % 10)
            carry = value // 10
        result = digits[0] + 10 * digits[1] + 100 * digits[2]
        return f"{head}={','.join(shown)};{result:03}", result


def _hardness(product: int) -> float:
    return 0.16 if product >= 42 else 0.07 if product >= 20 else 0.01


def _map(problem: Problem, w: Worker) -> int:
    x, factor, shift = problem.numbers
    for n in range(1, MAP_STEPS[problem.level - 1] + 1):
        first, x = w.times(x, factor)
        second, x = w.plus(x, shift)
        w.lines.append(f"{n}:{first} {second}\n")
    return x


def _product(problem: Problem, w: Worker) -> int:
    x = problem.numbers[0]
    for n, factor in enumerate(problem.numbers[1:], 1):
        ones, low = w.times(x, factor % 10)
        tens, high = w.times(x, factor // 10)
        total, x = w.plus(low, high * 10 % 1000)
        w.lines.append(f"{n}:{ones} {tens} {total}\n")
    return x


def _gcd(problem: Problem, w: Worker) -> int | None:
    a, b = max(problem.numbers), min(problem.numbers)
    for _ in range(MAX_LINES):
        line, rest = w.minus(a, b)
        w.lines.append(f"{line}\n")
        if rest == 0:
            return b
        a, b = max(b, rest), min(b, rest)
    return None
