"""Tokens of one model as tokens of another, while they are still coming.

Neither side starts over each time. What lies well before the end of a growing text can no longer change and is settled;
only the rest is encoded again. The result is exactly the encoding of the whole text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from cgr.engines.base import Engine

MARGIN = 128  # characters: longer than any token, so that nothing to come can reach across
SEAM = re.compile(r"(?<=\w)(?=[ \n]\w)")  # between a word and the single space before the next
TRIES = 8
UNFINISHED = "\ufffd"  # what half a character is decoded to


class Telling:
    """Growing tokens as text. A character that is cut in two goes with its end."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._ids: list[int] = []  # those still needed: the last ones told, as a foothold, and what is unfinished
        self._told = 0  # characters of their text

    async def grow(self, more: Sequence[int]) -> str:
        """The text that these tokens add."""
        self._ids += more
        whole = await self.engine.decode(self._ids)
        text = whole.rstrip(UNFINISHED)
        fresh, self._told = text[self._told :], max(len(text), self._told)
        if more and text == whole:
            self._ids = list(more)
            self._told = len(await self.engine.decode(self._ids))
        return fresh


class Retelling:
    """A growing text in tokens. `ids` are those of the whole text; the first `settled` of them will stay."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.ids: tuple[int, ...] = ()
        self.settled = 0
        self._text = ""  # from the foothold on
        self._seam = 0  # where the foothold ends: all tokens up to it are settled
        self._foothold: tuple[int, ...] = ()

    async def grow(self, more: str) -> None:
        """The foothold is encoded with what follows, which is so read as the middle of a text and not as a beginning."""
        self._text += more
        window = await self._encode(0, len(self._text))
        self.ids = (*self.ids[: self.settled], *window[len(self._foothold) :])
        await self._settle(window)

    async def _settle(self, window: tuple[int, ...]) -> None:
        """Move the seam on, to the last one that is far enough from the end, if the tokens part there too."""
        end = max(len(self._text) - MARGIN, 0)
        seams = [match.start() for match in SEAM.finditer(self._text, self._seam + 1, end)]
        for seam in seams[: -TRIES - 1 : -1]:
            before = await self._encode(0, seam)
            foothold = await self._encode(self._seam, seam)
            if window[: len(before)] == before and await self._holds(foothold, window[len(before) :]):
                self.settled += len(before) - len(self._foothold)
                self._text, self._seam, self._foothold = self._text[self._seam :], seam - self._seam, foothold
                return

    async def _holds(self, foothold: tuple[int, ...], rest: tuple[int, ...]) -> bool:
        """Whether what follows the new foothold is read as it was with all before it."""
        return await self._encode(self._seam, len(self._text)) == (*foothold, *rest)

    async def _encode(self, start: int, end: int) -> tuple[int, ...]:
        return await self.engine.encode(self._text[start:end]) if end > start else ()
