"""Marks: places in the thinking text where a rule may probe, before each "Wait" or "Alternatively" or after each paragraph.

`marks` finds them in a complete text, `Marks` in a text that still grows. Both find the same positions: `Marks` reports a
mark only when the following text can no longer change it ("Wait" may become "Waiter", a blank line may continue).
"""

from __future__ import annotations

import bisect
import itertools
import re
from collections.abc import Sequence
from typing import Literal

Place = Literal["wait", "paragraph"]
WORDS = ("Wait", "Alternatively")
PATTERNS = {"wait": re.compile(rf"\b(?:{'|'.join(WORDS)})\b"), "paragraph": re.compile(r"\n\n+")}
LONGEST_WORD = max(map(len, WORDS))


def marks(texts: Sequence[str], place: Place) -> tuple[int, ...]:
    """The marked positions, in tokens, of a thinking text; `texts` are the texts of its tokens. Position 0 is no mark."""
    starts = list(itertools.accumulate(map(len, texts), initial=0))[:-1]
    found = {_position(match, starts, place) for match in PATTERNS[place].finditer("".join(texts))}
    return tuple(sorted(found - {0}))


def _position(match: re.Match[str], starts: Sequence[int], place: Place) -> int:
    """Before the token in which the match starts, or after the token in which it ends."""
    if place == "wait":
        return bisect.bisect_right(starts, match.start()) - 1
    return bisect.bisect_right(starts, match.end() - 1)


class Marks:
    """The marked positions in a text whose tokens arrive one by one."""

    def __init__(self, place: Place) -> None:
        self.place, self._text = place, ""
        self._starts: list[int] = []
        self._found: list[int] = []
        self._searched = 0

    def __len__(self) -> int:
        return len(self._starts)

    def add(self, text: str) -> None:
        """Add one token."""
        self._starts.append(len(self._text))
        self._text += text
        self._search(over=False)

    @property
    def settled(self) -> int:
        """The number of tokens from the start in which no further mark can appear."""
        return bisect.bisect_right(self._starts, max(self._undecided(), 0)) - 1 if self._starts else 0

    def after(self, at: int, *, over: bool = False) -> int | None:
        """The first known mark after this position. `over`: the text is complete, so all marks are known."""
        if over:
            self._search(over=True)
        index = bisect.bisect_right(self._found, at)
        return self._found[index] if index < len(self._found) else None

    def _search(self, *, over: bool) -> None:
        for match in PATTERNS[self.place].finditer(self._text, self._searched):
            if match.end() == len(self._text) and not over:
                break
            self._searched = match.end()
            self._found.append(_position(match, self._starts, self.place))
        self._searched = max(self._searched, self._undecided())

    def _undecided(self) -> int:
        """The first character from which the next token may complete a mark."""
        if self.place == "wait":
            return len(self._text) - LONGEST_WORD
        return len(self._text.rstrip("\n"))
