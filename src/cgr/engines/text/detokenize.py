"""A tokenizer that can be asked from any thread, and text as it comes, token by token."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

BROKEN = "\ufffd"
CONTEXT = 4  # tokens before a piece that can change how it reads, such as a space that is dropped at a beginning


class Words:
    """Texts to ids and back, special tokens included."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self._lock = threading.Lock()

    def encode(self, text: str, *, special: bool = False) -> tuple[int, ...]:
        """`special`: with the tokens that the tokenizer puts before every text."""
        with self._lock:
            return tuple(self.tokenizer(text, add_special_tokens=special)["input_ids"])

    def decode(self, ids: Sequence[int]) -> str:
        with self._lock:
            text: str = self.tokenizer.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False)
            return text

    def pieces(self, before: Sequence[int]) -> Pieces:
        return Pieces(self, list(before[-CONTEXT:]))


@dataclass(slots=True)
class Pieces:
    """The text that each token adds. A character spread over several tokens comes with the last of them."""

    words: Words
    before: list[int]
    _shown: str | None = None
    _fresh: list[int] = field(default_factory=list)

    def feed(self, token: int) -> str:
        if self._shown is None:
            self._shown = self.words.decode(self.before)
        self._fresh.append(token)
        text = self.words.decode([*self.before, *self._fresh])
        if text.endswith(BROKEN) and len(self._fresh) < CONTEXT:
            return ""
        piece = text[len(self._shown) :]
        self.before, self._fresh = [*self.before, *self._fresh][-CONTEXT:], []
        self._shown = None
        return piece
