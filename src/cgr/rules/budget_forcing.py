from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from cgr.rules.actions import GO_ON, Action, KeepThinking
from cgr.rules.base import Rule, Seen, rule
from cgr.rules.limits import Limits, parameter

FORCINGS = Limits(options=("replace", "ban"))


@rule("budget-forcing")
@dataclass(frozen=True, kw_only=True)
class BudgetForcing(Rule):
    """Never let thinking end before the budget: write "Wait" where the model would stop.

    Muennighoff et al.: s1, simple test-time scaling (the paper's Algorithm 2). `at_most` limits how often, as s1 does; by
    default there is no limit, as in the paper. `forcing="ban"` forbids the end tag instead, as a logits processor does.
    """

    at_most: int | None = parameter(None, Limits(0))
    forcing: Literal["replace", "ban"] = parameter("replace", FORCINGS)
    example: ClassVar[str] = "--set at_most=2"
    forces: ClassVar[bool] = True

    @property
    def bans_end(self) -> bool:
        return self.forcing == "ban"

    def on_end(self, seen: Seen) -> Action:
        return KeepThinking() if self.at_most is None or seen.forced < self.at_most else GO_ON
