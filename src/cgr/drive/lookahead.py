"""Thinks up to the next mark, on any engine.

A mark is certain only once the text after it was read ("Wait" may become "Waiter"). A session cannot take tokens back, so
the tokens past the mark are kept here, and a probe at the mark is made with `rewind`: as if those tokens did not exist.
"""

from __future__ import annotations

from collections.abc import Sequence

from cgr.engines.base import Engine, OnText, Session, Stretch
from cgr.rules.marks import Marks, Place


class Lookahead:
    """A session's thinking up to the next mark. `known`: the positions of the marks, if they are recorded."""

    def __init__(self, engine: Engine, session: Session, known: Sequence[int] | None = None) -> None:
        self.engine, self.session, self.known = engine, session, known
        self.at = 0
        self._read: list[int] = []
        self._end: Stretch | None = None
        self._marks: Marks | None = None
        self._texts: dict[int, str] = {}
        self._passed_on = 0

    @property
    def rewind(self) -> int:
        """Tokens that were read and not returned yet."""
        return len(self._read) - self.at

    async def think(
        self, tokens: int, until: Place | None = None, *, ban_end: bool = False, on_text: OnText | None = None
    ) -> tuple[Stretch, bool]:
        """Up to this many tokens, and whether a mark of this kind follows them."""
        if until is None:
            return await self._without_marks(tokens, ban_end, on_text), False
        if self.known is not None:
            mark = next((mark for mark in self.known if mark > self.at), None)
            near = mark is not None and mark < self.at + tokens
            stretch = await self._without_marks(mark - self.at if mark is not None and near else tokens, ban_end, on_text)
            return stretch, near and not stretch.ended
        return await self._to_mark(tokens, until, ban_end, on_text)

    async def _without_marks(self, tokens: int, ban_end: bool, on_text: OnText | None) -> Stretch:
        """The tokens that were read already, then more."""
        waiting = self._read[self.at : self.at + tokens]
        if waiting and on_text:
            on_text(await self.engine.decode(waiting))
        self.at += len(waiting)
        if self._end is not None or len(waiting) == tokens:
            ended = self._end is not None and len(waiting) < tokens
            return Stretch(tuple(waiting), ended, ended and self._end is not None and self._end.eos)
        stretch = await self.session.think(tokens - len(waiting), ban_end=ban_end, on_text=on_text)
        self._read += stretch.ids
        self.at += len(stretch.ids)
        if not waiting:
            return stretch
        return Stretch((*waiting, *stretch.ids), stretch.ended, stretch.eos)

    async def _to_mark(self, tokens: int, until: Place, ban_end: bool, on_text: OnText | None) -> tuple[Stretch, bool]:
        marks = self._marks = self._marks or Marks(until)
        limit = self.at + tokens
        while True:
            for token in self._read[len(marks) :]:
                marks.add(await self._text(token))
            over = self._end is not None or len(self._read) >= limit
            mark = marks.after(self.at, over=over)
            if mark is not None and mark < limit:
                return await self._return_to(mark, on_text), True
            if over:
                return await self._return_to(min(len(self._read), limit), on_text, limit), False
            await self._pass_on(marks.settled, on_text)
            stretch = await self.session.think(1, ban_end=ban_end)
            self._read += stretch.ids
            self._end = stretch if stretch.ended else None

    async def _return_to(self, end: int, on_text: OnText | None, limit: int | None = None) -> Stretch:
        ids = tuple(self._read[self.at : end])
        await self._pass_on(end, on_text)
        self.at = end
        ended = limit is not None and self._end is not None and end < limit
        return Stretch(ids, ended, ended and self._end is not None and self._end.eos)

    async def _pass_on(self, end: int, on_text: OnText | None) -> None:
        """Pass on the text of tokens that will be returned in any case, as soon as that is known."""
        begin, self._passed_on = max(self._passed_on, self.at), max(self._passed_on, end)
        if on_text and begin < end:
            on_text("".join([await self._text(token) for token in self._read[begin:end]]))

    async def append(self, ids: Sequence[int]) -> None:
        """Continue with these tokens in place of the end; tokens that were read past it are dropped."""
        await self.session.append(ids)
        self._read = [*self._read[: self.at], *ids]
        self.at, self._end = len(self._read), None

    async def _text(self, token: int) -> str:
        if token not in self._texts:
            self._texts[token] = await self.engine.decode([token])
        return self._texts[token]
