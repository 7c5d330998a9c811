"""Noticing the end of thinking in a stream of tokens, whether the end tag is one token or a text spread over several."""

from __future__ import annotations

from dataclasses import dataclass, field

Pair = tuple[int, str]


@dataclass(frozen=True, slots=True)
class EndTag:
    """How a model ends its thinking."""

    text: str
    ids: tuple[int, ...]

    @property
    def token(self) -> int | None:
        """The one token that it is, if it is one."""
        return self.ids[0] if len(self.ids) == 1 else None


@dataclass(slots=True)
class Watch:
    """Lets tokens through and holds back what may yet turn out to be the end.

    Held are the last token (a server names the end of turn only after it) and, where the tag is not one token, all that
    could be its beginning.
    """

    tag: EndTag
    held: list[Pair] = field(default_factory=list)
    found: bool = False

    def feed(self, token: int, text: str) -> list[Pair]:
        """The tokens that are now known to be thinking; `found` is set once the tag was seen."""
        if self.tag.token is not None:
            self.found = token == self.tag.token
            freed, self.held = self.held, [] if self.found else [(token, text)]
            return freed
        self.held.append((token, text))
        joined = "".join(text for _, text in self.held)
        self.found = self.tag.text in joined
        start = joined.index(self.tag.text) if self.found else len(joined) - _begun(joined, self.tag.text)
        freed, self.held = self._before(min(start, len(joined) - len(text)) if not self.found else start)
        if self.found:
            self.held = []
        return freed

    def flush(self, eos: bool) -> list[Pair]:
        """The stream is over: what was held is thinking after all, but for the token that ended the turn."""
        freed, self.held = (self.held[:-1] if eos else self.held), []
        return freed

    def _before(self, start: int) -> tuple[list[Pair], list[Pair]]:
        """Split what is held at a character: a token that reaches past it stays."""
        end = 0
        for index, (_, text) in enumerate(self.held):
            end += len(text)
            if end > start or (index == len(self.held) - 1 and not self.found):
                return self.held[:index], self.held[index:]
        return self.held, []


def _begun(text: str, tag: str) -> int:
    """How many characters at the end of the text may be the beginning of the tag."""
    return next((n for n in range(len(tag) - 1, 0, -1) if text.endswith(tag[:n])), 0)
