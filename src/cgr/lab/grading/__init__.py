"""Decides whether an answer is correct.

Integers are compared exactly, as in the paper; numbers as exact fractions; choices by letter; everything else by
math-verify, in a worker process (`math_worker.py`).
"""

from __future__ import annotations

import atexit
import re
from collections.abc import Iterable
from contextlib import suppress
from functools import cache, lru_cache

from cgr.certainty import letter_in
from cgr.errors import UsageError
from cgr.lab.grading.math_worker import MathWorker
from cgr.records import AnswerFormat
from cgr.rules.same_answer import normalised, quantities, quantity

FORMATS: tuple[AnswerFormat, ...] = ("integer", "number", "choice", "math")
_INTEGER = re.compile(r"([+-]?)([0-9]+)")
_STYLE = re.compile(r"\\(?:text|textbf|textit|textrm|mathrm|mathbf|mathsf|operatorname)\{([^{}]*)\}")
_BASED = re.compile(
    r"([+-]?)([0-9][0-9A-Za-z]*)(?:_\{?\(?([0-9]{1,2}|[a-z]+)\)?\}?|\s*\(?(?:in )?base[ ~]*([0-9]{1,2}|[a-z]+)\)?)"
)
MAX_BASE = 36  # the largest whose digits are 0..9 and A..Z
BASES = {
    **{"two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9, "ten": 10},
    **{"eleven": 11, "twelve": 12, "sixteen": 16},
}


def is_right(answer: str, gold: str, format: AnswerFormat) -> bool:
    """Whether the answer equals the gold. A gold that does not match its format raises `UsageError`."""
    right = clean_gold(gold, format)
    if right is None:
        raise UsageError(
            f"The gold answer {gold!r} does not have the format {format!r}.", f"Choose a format: {', '.join(FORMATS)}."
        )
    if format in ("integer", "choice"):
        return (_integer if format == "integer" else _choice)(answer) == right
    return is_valid(answer, format) and _same(answer, gold, format)


def is_valid(answer: str, format: AnswerFormat) -> bool:
    """Whether the answer has this format. An invalid answer counts as wrong."""
    if format == "integer":
        return _integer(answer) is not None
    if format == "choice":
        return _choice(answer) is not None
    if format == "number":
        return any(char.isdigit() for char in answer)
    return bool(answer.strip())


def check_many(pairs: Iterable[tuple[str, str, AnswerFormat]]) -> list[bool]:
    """`is_right` for each (answer, gold, format); each distinct triple is checked once."""
    wanted = list(pairs)
    verdicts = {pair: is_right(*pair) for pair in dict.fromkeys(wanted)}
    return [verdicts[pair] for pair in wanted]


def clean_gold(gold: str, format: AnswerFormat) -> str | None:
    """The gold in the normal form of its format: `025` is 25, `1,000` is 1000, `336^\\circ` is 336; None if impossible."""
    if format == "choice":
        return _choice(gold)
    if format == "math":
        return gold.strip() or None
    value = quantity(gold)
    if value is None or (format == "integer" and not value.written.lstrip("-").isdigit()):
        return None
    return value.written


def _integer(text: str) -> str | None:
    """A plain integer in its shortest form. `25.0`, `25^\\circ` and digits of other scripts are not integers."""
    match = _INTEGER.fullmatch(text.strip())
    if match is None:
        return None
    digits = match[2].lstrip("0") or "0"
    return f"-{digits}" if match[1] == "-" and digits != "0" else digits


def _choice(text: str) -> str | None:
    """The letter of `B`, `b`, `(B)`, `B.`, `\\text{B}` or `B) because ...`."""
    return letter_in(_STYLE.sub(r"\1", text))


def _same(answer: str, gold: str, format: AnswerFormat) -> bool:
    """Whether two numbers or expressions are equal. Plain numbers are compared here, everything else by math-verify."""
    if format == "math" and normalised(answer) == normalised(gold):
        return True
    based = _in_base(answer), _in_base(gold)
    if based[0] and based[1]:  # math-verify does not read the base
        return based[0] == based[1]
    plain = quantities(answer, gold)
    if plain and plain[0].equals(plain[1]):
        return True
    if plain and (format == "number" or all(one.value.denominator == 1 for one in plain)):
        return False
    return _same_by_math_verify(answer, gold)


@lru_cache(maxsize=1 << 12)
def _in_base(text: str) -> tuple[int, int | str] | None:
    """What is compared of a number with a written base, such as `4210_7`: its value. A number whose digits do not exist in
    its base has none, and is compared by base and digits. None for any other text."""
    match = _BASED.fullmatch(_STYLE.sub(r"\1", text).replace("\\", "").strip().strip("$").strip().rstrip("."))
    if match is None:
        return None
    sign, digits, base = match[1].replace("+", ""), match[2], match[3] or match[4]
    radix = int(base) if base.isdigit() else BASES.get(base, 0)
    if not 2 <= radix <= MAX_BASE:
        return None
    with suppress(ValueError):
        return 0, int(sign + digits, radix)
    return (radix, sign + digits) if digits.isdigit() else None


@cache
def shared_worker() -> MathWorker:
    """The worker of this process, created when first needed and closed at exit."""
    worker = MathWorker()
    atexit.register(worker.close)
    return worker


@lru_cache(maxsize=1 << 16)
def _same_by_math_verify(answer: str, gold: str) -> bool:
    return shared_worker().equal(answer, gold)
