"""Compare answers as plain numbers or as normalised texts, without computer algebra.

Rules use it live and on recordings. Grading in the lab uses it first, and computer algebra where it cannot decide.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from cgr.records import Probe

CACHED_ANSWERS = 1 << 12  # probes give the same few answers again and again
MAX_LENGTH = 400  # characters of a plain number; longer texts are left to the worker process of the grading
_DECIMAL = re.compile(r"[+-]?(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]{1,3}(?: [0-9]{3})+|[0-9]+)?(?:\.[0-9]*)?")
_RATIO = re.compile(r"([+-]?)(?:\\frac ?\{([0-9]+)\} ?\{([0-9]+)\}|([0-9]+) ?/ ?([0-9]+))")
_DECIMAL_COMMA = re.compile(r"([+-]?[0-9]+),([0-9]{1,2}|[0-9]{4,})")
_DEGREES = re.compile(r"(?:\^ ?\{?\\circ\}?|\\degrees?|°)$")
_BOXED = re.compile(r"^\\boxed\{(.*)\}$", re.DOTALL)
_LEFT_RIGHT = re.compile(r"\\(?:left|right)(?![A-Za-z])")


@lru_cache(maxsize=CACHED_ANSWERS)
def same_answer(one: str, other: str) -> bool:
    """Whether two answers are equal as normalised texts or as plain numbers (`1/2`, `0.5`, `\\frac12`)."""
    if one == other or normalised(one) == normalised(other):
        return True
    plain = quantities(one, other)
    return plain is not None and plain[0].equals(plain[1])


def agrees(answer: str | None, closed: bool, final: Probe) -> bool:
    """Whether the answer of a stop is complete and equals the final one of the same trace."""
    return closed and final.closed and same_answer(answer or "", final.answer)


@dataclass(frozen=True, slots=True)
class Quantity:
    """A plain number. `percent`: a percent sign follows it. `body`: how it was written, without commas and spaces."""

    value: Fraction
    percent: bool
    body: str

    @property
    def written(self) -> str:
        """The number as text: an integer in its shortest form, anything else as it was written."""
        return (str(self.value) if self.value.denominator == 1 else self.body) + "%" * self.percent

    def equals(self, other: Quantity) -> bool:
        """Equal in value; if only one has a percent sign, also equal as a fraction: 50% equals 50 and 0.5."""
        return self.value in (other.value, other.value * Fraction(100) ** (self.percent - other.percent))


@lru_cache(maxsize=CACHED_ANSWERS)
def quantity(text: str, decimal_comma: bool = False) -> Quantity | None:
    """The number in a text that is a plain decimal or a ratio of integers; None for any other text."""
    if len(text) > MAX_LENGTH:
        return None
    body = _bare(text)
    percent = body.endswith("%")
    body = body.removesuffix("%").strip()
    if decimal_comma and (comma := _DECIMAL_COMMA.fullmatch(body)):
        body = f"{comma[1]}.{comma[2]}"
    if match := _RATIO.fullmatch(body):
        top, bottom = match[2] or match[4], match[3] or match[5]
        return Quantity(Fraction(int(match[1] + top), int(bottom)), percent, body) if int(bottom) else None
    if _DECIMAL.fullmatch(body) and any(char.isdigit() for char in body):
        body = body.replace(",", "").replace(" ", "")
        return Quantity(Fraction(body.rstrip(".")), percent, body)
    return None


def _bare(text: str) -> str:
    """The text without dollar signs, thin spaces, degree signs and a final full stop."""
    body = text.replace("\\$", "").strip().strip("$").strip()
    body = body.replace("{,}", ",").replace("\\!", "").replace("\\,", " ").replace("\\ ", " ").replace("\\%", "%")
    body = body.replace("\u2212", "-").replace("\u00a0", " ").replace("\u202f", " ")
    body = body.replace("\\dfrac", "\\frac").replace("\\tfrac", "\\frac")
    return _DEGREES.sub("", body.rstrip(".").rstrip()).strip()


def quantities(answer: str, gold: str) -> tuple[Quantity, Quantity] | None:
    """Both as plain numbers, or None. A comma is a decimal comma only if the other answer has a point: `1,22`, `1.22`."""
    left, right = quantity(answer, decimal_comma="." in gold), quantity(gold, decimal_comma="." in answer)
    return (left, right) if left and right else None


@lru_cache(maxsize=CACHED_ANSWERS)
def normalised(text: str) -> str:
    """The text without LaTeX commands and spaces that change only its appearance."""
    body = _BOXED.sub(r"\1", text.strip().strip("$").rstrip("."))
    body = _LEFT_RIGHT.sub("", body).replace("\\!", "")
    body = body.replace("\\dfrac", "\\frac").replace("\\tfrac", "\\frac").replace("\\,", " ").replace("\\ ", " ")
    return re.sub(r"(?<![0-9A-Za-z])\s+|\s+(?![0-9A-Za-z])", "", body)
