"""Answers as plain numbers and texts: as much of mathematics as can be told without computer algebra.

Rules that compare answers use it live and replayed; the lab begins with it and goes on where it does not know.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

REMEMBERED = 1 << 12  # answers: probe after probe gives the same few
LONGEST = 400  # characters of what is read as a plain number; longer is left to the guarded worker
_DECIMAL = re.compile(r"[+-]?(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]{1,3}(?: [0-9]{3})+|[0-9]+)?(?:\.[0-9]*)?")
_RATIO = re.compile(r"([+-]?)(?:\\frac ?\{([0-9]+)\} ?\{([0-9]+)\}|([0-9]+) ?/ ?([0-9]+))")
_DECIMAL_COMMA = re.compile(r"([+-]?[0-9]+),([0-9]{1,2}|[0-9]{4,})")
_DEGREES = re.compile(r"(?:\^ ?\{?\\circ\}?|\\degrees?|°)$")
_BOXED = re.compile(r"^\\boxed\{(.*)\}$", re.DOTALL)
_LEFT_RIGHT = re.compile(r"\\(?:left|right)(?![A-Za-z])")


def same_answer(one: str, other: str) -> bool:
    """Whether two answers are the same: as texts but for their looks, or as plain numbers (`1/2`, `0.5`, `\\frac12`)."""
    if one == other or normalised(one) == normalised(other):
        return True
    plain = quantities(one, other)
    return plain is not None and plain[0].equals(plain[1])


@dataclass(frozen=True, slots=True)
class Quantity:
    """A plain number, whether a percent sign follows it, and how it was written without commas and spaces."""

    value: Fraction
    percent: bool
    body: str

    @property
    def written(self) -> str:
        return (str(self.value) if self.value.denominator == 1 else self.body) + "%" * self.percent

    def equals(self, other: Quantity) -> bool:
        """Equal as written, or, where only one of them has a percent sign, as a share: 50% is 50 and 0.5."""
        return self.value in (other.value, other.value * Fraction(100) ** (self.percent - other.percent))


@lru_cache(maxsize=REMEMBERED)
def quantity(text: str, decimal_comma: bool = False) -> Quantity | None:
    """A plain decimal or a ratio of integers; None for anything that needs mathematics to be read."""
    if len(text) > LONGEST:
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
    """Without dollar signs, thin spaces, degrees and a final full stop, none of which change a number."""
    body = text.replace("\\$", "").strip().strip("$").strip()
    body = body.replace("{,}", ",").replace("\\!", "").replace("\\,", " ").replace("\\ ", " ").replace("\\%", "%")
    body = body.replace("\u2212", "-").replace("\u00a0", " ").replace("\u202f", " ")
    body = body.replace("\\dfrac", "\\frac").replace("\\tfrac", "\\frac")
    return _DEGREES.sub("", body.rstrip(".").rstrip()).strip()


def quantities(answer: str, gold: str) -> tuple[Quantity, Quantity] | None:
    """Both as plain numbers, if both are. A comma is a decimal one only if the other side has a point: `1,22`, `1.22`."""
    left, right = quantity(answer, decimal_comma="." in gold), quantity(gold, decimal_comma="." in answer)
    return (left, right) if left and right else None


@lru_cache(maxsize=REMEMBERED)
def normalised(text: str) -> str:
    """The same text without what only changes its looks."""
    body = _BOXED.sub(r"\1", text.strip().strip("$").rstrip("."))
    body = _LEFT_RIGHT.sub("", body).replace("\\!", "")
    body = body.replace("\\dfrac", "\\frac").replace("\\tfrac", "\\frac").replace("\\,", " ").replace("\\ ", " ")
    return re.sub(r"(?<![0-9A-Za-z])\s+|\s+(?![0-9A-Za-z])", "", body)
