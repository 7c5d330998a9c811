from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from cgr.rules.actions import Action
from cgr.rules.base import Seen, rule
from cgr.rules.forced_thinking import ForcedThinking


@rule("budget-forcing")
@dataclass(frozen=True, kw_only=True)
class BudgetForcing(ForcedThinking):
    """Never let thinking end before the budget: write "Wait" where the model would stop.

    Muennighoff et al.: s1, simple test-time scaling (the paper's Algorithm 2). `at_most` limits how often, as s1 does; by
    default there is no limit, as in the paper. `text` is what is written. `forcing="ban"` forbids the end tag instead, as
    a logits processor does.
    """

    example: ClassVar[str] = "--set at_most=2"

    def on_end(self, seen: Seen) -> Action:
        return self.force(seen)
