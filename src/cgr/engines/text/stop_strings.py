"""Stop strings in text that arrives in pieces."""

from __future__ import annotations

from dataclasses import dataclass


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
        end = min(starts) if starts else len(self._held) - self._possible_start()
        passed, self._held = self._held[:end], "" if self.found else self._held[end:]
        return passed

    def flush(self) -> str:
        """The text that was held back; call it when no more text follows."""
        held, self._held = self._held, ""
        return held

    def _possible_start(self) -> int:
        """How many characters at the end may be the beginning of a stop string."""
        held = self._held
        return max((n for stop in self.stops for n in range(1, len(stop)) if held.endswith(stop[:n])), default=0)
