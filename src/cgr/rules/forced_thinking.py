from __future__ import annotations

from dataclasses import dataclass, fields
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


def keep_thinking(rule: Rule, text: str = WAIT, at_most: int | None = None) -> Rule:
    """This rule for thinking that is forced to go on: where the rule would let it end, `text` replaces the end tag.

    It decides as before when to stop or to give up.
    """
    own = type(rule)

    def on_end(self: Rule, seen: Seen) -> Action:
        action = own.on_end(self, seen)
        wanted = action == GO_ON and (at_most is None or seen.forced < at_most)
        return KeepThinking(text) if wanted else action

    forced = type(own.__name__, (own,), {"on_end": on_end, "__doc__": own.__doc__, "__module__": own.__module__})
    made: Rule = forced(**{one.name: getattr(rule, one.name) for one in fields(rule)})
    return made
