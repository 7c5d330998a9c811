"""The tokenizer of a Hugging Face model, and the text of a token stream: token by token, up to a stop string."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from cgr.engines.text.chat import partial_length

INCOMPLETE = "\ufffd"  # what a part of a character is decoded to
CONTEXT = 4  # preceding tokens that can change the text of a token, such as a space that is dropped at the beginning


class HFTokenizer:
    """Text to ids and back, from any thread; special tokens are part of the text.

    `bos` and `eos`: the texts of the tokens that begin a prompt and end a turn, if the tokenizer has them; `template`: the
    chat template, or the default one of several; `special`: the ids of special tokens by their text.
    """

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self.bos, self.eos = str(tokenizer.bos_token or ""), str(tokenizer.eos_token or "")
        template, added = tokenizer.chat_template or "", tokenizer.added_tokens_decoder
        self.template = str(template.get("default", "") if isinstance(template, dict) else template)
        self.special = {str(token): int(number) for number, token in added.items() if str(token).strip()}
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


@dataclass(slots=True)
class StopStrings:
    """Passes text on up to the first stop string. Text that may be the beginning of one is held back."""

    stops: tuple[str, ...]
    found: bool = False
    _held: str = ""

    def feed(self, text: str) -> str:
        """The text that certainly comes before any stop string; `found` is set once one is complete."""
        self._held += text
        starts = [start for stop in self.stops if stop and (start := self._held.find(stop)) >= 0]
        self.found = bool(starts)
        end = min(starts) if starts else len(self._held) - partial_length(self._held, self.stops)
        passed, self._held = self._held[:end], "" if self.found else self._held[end:]
        return passed

    def flush(self) -> str:
        """The text that was held back; call it when no more text follows."""
        held, self._held = self._held, ""
        return held
