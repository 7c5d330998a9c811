"""Keeps think tags out of the text of an answer."""

from __future__ import annotations

from collections.abc import Sequence

from cgr.engines.text.chat import partial_length


class TagFilter:
    """Removes these tags from a text that comes in pieces. The end of a piece that may be the start of a tag waits."""

    def __init__(self, tags: Sequence[str]) -> None:
        self.tags = [tag for tag in tags if tag]
        self._held = ""

    def feed(self, text: str) -> str:
        """The text that can be shown now."""
        text = self._held + text
        for tag in self.tags:
            text = text.replace(tag, "")
        held = partial_length(text, self.tags)
        self._held = text[len(text) - held :]
        return text[: len(text) - held]

    def flush(self) -> str:
        """What was held back, at the end."""
        held, self._held = self._held, ""
        return held
