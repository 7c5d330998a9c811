"""Limits on what a server sends in a completion: one that sends more than it was asked for must not use up the memory, and
one that leaves out tokens must be noticed.

llama.cpp streams no token that ends inside a character, such as the first tokens of an emoji: its id never comes. The
number of tokens so far, which each event has, shows it. A completion that is not streamed has all ids. The text of a stream
is complete, so a written answer needs no other request.
"""

from __future__ import annotations

import codecs
from typing import Any

from cgr.engines.completions.dialect import LLAMA, Dialect, Piece, read_reply
from cgr.engines.completions.http import BadReply

MAX_TOKEN_CHARACTERS = 4096  # of the text of one token: the longest of a real vocabulary have some hundreds
EXTRA_EVENTS = 64  # of a stream, beyond two for each token


class Withheld(BadReply):
    """A stream left out tokens."""


class EventParser:
    """Parses the events of a stream of `count` tokens. Without a limit, a stream that never ends would never be left.

    `only_text`: tokens that the stream leaves out are counted in `Piece.unnamed`, and are no error.
    """

    def __init__(self, dialect: Dialect, count: int, *, only_text: bool = False) -> None:
        self._dialect, self._left, self._received = dialect, 2 * count + EXTRA_EVENTS, 0
        self._only_text = only_text
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def __call__(self, event: dict[str, Any]) -> Piece:
        self._left -= 1
        if self._left < 0:
            raise BadReply("it sent many more events than it was asked for tokens")
        piece = limited(read_reply(self._dialect, event, self._decoder))
        if self._dialect.api == LLAMA and (missing := self._missing(piece, event.get("tokens_predicted"))):
            if not self._only_text:
                raise Withheld("it left out tokens of a character that is several tokens")
            self._received += missing
            return piece._replace(unnamed=missing)
        return piece

    def _missing(self, piece: Piece, generated: Any) -> int:
        """How many more tokens the server has generated than it sent."""
        self._received += len(piece.ids)
        known = (piece.ids or piece.stop == "limit") and isinstance(generated, int)
        return max(generated - self._received, 0) if known else 0


def limited(piece: Piece, count: int = 1) -> Piece:
    """The piece, unless it has more text than `count` tokens, or those that it has, can hold."""
    if not piece.tokens and len(piece.text) <= MAX_TOKEN_CHARACTERS:  # so for most of the tokens of all streams
        return piece
    count = max(count, len(piece.ids), len(piece.tokens))
    longest = max((len(token.text) for token in piece.tokens), default=0)
    if len(piece.text) > MAX_TOKEN_CHARACTERS * count or longest > MAX_TOKEN_CHARACTERS:
        raise BadReply(f"it sent a token of more than {MAX_TOKEN_CHARACTERS} characters")
    return piece
