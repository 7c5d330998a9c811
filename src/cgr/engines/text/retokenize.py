"""Tokens of one model as tokens of another, while more are still coming.

Nothing is encoded from the start each time. Tokens well before the end of a growing text can no longer change: they are
settled, and only the rest is encoded again. The result is exactly the encoding of the whole text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from cgr.engines.base import Engine

MARGIN = 128  # characters: longer than any token, so that later text cannot change tokens before it
SEAM = re.compile(r"(?<=\w)(?=[ \n]\w)")  # between a word and the single space before the next
TRIES = 8
UNFINISHED = "\ufffd"  # an incomplete character is decoded to this


class GrowingText:
    """The text of growing tokens. A character that is split over tokens comes with the last of them."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._ids: list[int] = []  # those still needed: the last ones decoded, as context, and the unfinished ones
        self._decoded = 0  # characters of their text that were returned

    async def grow(self, more: Sequence[int]) -> str:
        """The text that these tokens add."""
        self._ids += more
        whole = await self.engine.decode(self._ids)
        text = whole.rstrip(UNFINISHED)
        fresh, self._decoded = text[self._decoded :], max(len(text), self._decoded)
        if more and text == whole:
            self._ids = list(more)
            self._decoded = len(await self.engine.decode(self._ids))
        return fresh


class GrowingTokens:
    """The tokens of a growing text. `ids` are those of the whole text; the first `settled` of them no longer change."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.ids: tuple[int, ...] = ()
        self.settled = 0
        self._text = ""  # from the beginning of the context on
        self._seam = 0  # where the context ends: all tokens before it are settled
        self._context: tuple[int, ...] = ()

    async def grow(self, more: str) -> None:
        """Add text. It is encoded together with some context before it, because a tokenizer treats the beginning of a text
        differently."""
        self._text += more
        window = await self._encode(0, len(self._text))
        self.ids = (*self.ids[: self.settled], *window[len(self._context) :])
        await self._settle(window)

    async def _settle(self, window: tuple[int, ...]) -> None:
        """Move the seam to the last one that is far enough from the end and is also a border between tokens."""
        end = max(len(self._text) - MARGIN, 0)
        seams = [match.start() for match in SEAM.finditer(self._text, self._seam + 1, end)]
        for seam in seams[: -TRIES - 1 : -1]:
            before = await self._encode(0, seam)
            context = await self._encode(self._seam, seam)
            # whether the rest is encoded the same after the new context as after all the text before it
            rest = (*context, *window[len(before) :])
            if window[: len(before)] == before and await self._encode(self._seam, len(self._text)) == rest:
                self.settled += len(before) - len(self._context)
                self._text, self._seam, self._context = self._text[self._seam :], seam - self._seam, context
                return

    async def _encode(self, start: int, end: int) -> tuple[int, ...]:
        return await self.engine.encode(self._text[start:end]) if end > start else ()
