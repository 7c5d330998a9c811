"""Whether the answer of a probe already stands in the thinking: how often, and how long ago.

It costs no tokens. A number counts where it stands as a whole number, other answers where their normalised text stands
between word boundaries of the normalised thinking.
"""

from __future__ import annotations

import re

from cgr.rules.same_answer import normalised, quantity

_SEPARATORS = re.compile(r"(?<=[0-9]),(?=[0-9]{3}(?![0-9]))")  # of thousands
Stated = tuple[int, int]  # how often, and how many characters ago; (0, 0): never
NEVER: Stated = (0, 0)


def stated(answer: str, thinking: str) -> Stated:
    """How often this answer stands in the thinking, and how many characters come after the last time."""
    found, text = (_number, _SEPARATORS.sub("", thinking)) if quantity(answer) else (_text, _plain(thinking))
    ends = [one.end() for one in found(answer).finditer(text)] if answer.strip() else []
    return (len(ends), len(text) - ends[-1]) if ends else NEVER


def _number(answer: str) -> re.Pattern[str]:
    number = quantity(answer)
    assert number is not None
    return re.compile(rf"(?<![0-9.]){re.escape(number.written.rstrip('%'))}(?![0-9]|\.[0-9])")


def _text(answer: str) -> re.Pattern[str]:
    return re.compile(rf"(?<!\w){re.escape(normalised(answer))}(?!\w)")


def _plain(thinking: str) -> str:
    """The normalised thinking. The cache of `normalised` is for answers, which are short."""
    plain: str = normalised.__wrapped__(thinking)
    return plain
