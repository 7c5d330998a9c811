"""The tokenizer of a Hugging Face model, usable from any thread, and the text of a token stream, token by token."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

INCOMPLETE = "\ufffd"  # what a part of a character is decoded to
CONTEXT = 4  # preceding tokens that can change the text of a token, such as a space that is dropped at the beginning


class HFTokenizer:
    """Text to ids and back; special tokens are part of the text."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self._lock = threading.Lock()

    def encode(self, text: str, *, special: bool = False) -> tuple[int, ...]:
        """The ids of a text. `special`: add the tokens that the tokenizer puts before every text."""
        with self._lock:
            return tuple(self.tokenizer(text, add_special_tokens=special)["input_ids"])

    def decode(self, ids: Sequence[int]) -> str:
        """The text of these ids."""
        with self._lock:
            text: str = self.tokenizer.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False)
            return text

    def detokenizer(self, before: Sequence[int] = ()) -> Detokenizer:
        """A detokenizer for the tokens that follow `before`."""
        return Detokenizer(self, list(before[-CONTEXT:]))


@dataclass(slots=True)
class Detokenizer:
    """The text that each token adds. A character of several tokens is returned with the last of them."""

    tokenizer: HFTokenizer
    before: list[int]
    _pending: list[int] = field(default_factory=list)

    def feed(self, token: int) -> str:
        """The text that becomes complete with this token."""
        self._pending.append(token)
        text = self.tokenizer.decode([*self.before, *self._pending])
        if text.endswith(INCOMPLETE) and len(self._pending) < CONTEXT:
            return ""
        return self._take(text)

    def flush(self) -> str:
        """The text of the tokens that do not form a whole character; call it when no more tokens follow."""
        return self._take(self.tokenizer.decode([*self.before, *self._pending])) if self._pending else ""

    def _take(self, text: str) -> str:
        start = len(self.tokenizer.decode(self.before))
        self.before, self._pending = [*self.before, *self._pending][-CONTEXT:], []
        return text[start:]
