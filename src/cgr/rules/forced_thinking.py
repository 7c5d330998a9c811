from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from cgr.errors import UsageError
from cgr.rules.actions import GO_ON, WAIT, Action, KeepThinking
from cgr.rules.base import Rule, Seen
from cgr.rules.limits import Limits, parameter


@dataclass(frozen=True, kw_only=True)
class ForcedThinking(Rule):
    """A rule that keeps a model thinking where it wants to end: `text` replaces the end tag, `at_most` so many times.

    `forcing="ban"` forbids the end tag instead, as a logits processor does.
    """

    at_most: int | None = parameter(None, Limits(0))
    forcing: Literal["replace", "ban"] = parameter("replace", Limits(options=("replace", "ban")))
    text: str = WAIT
    forces: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (isinstance(self.text, str) and self.text):
            raise UsageError(
                f"The value of 'text' of {self.name!r} cannot be {self.text!r:.60}.", "Use some text, such as '\\nWait'."
            )

    @property
    def bans_end(self) -> bool:
        return self.forcing == "ban"

    def force(self, seen: Seen) -> Action:
        """Keep thinking, unless that was done as often as allowed."""
        return KeepThinking(self.text) if self.at_most is None or seen.forced < self.at_most else GO_ON
