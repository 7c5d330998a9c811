from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from cgr.rules.base import Rule, rule


@rule("fixed-budget")
@dataclass(frozen=True, kw_only=True)
class FixedBudget(Rule):
    """Think until the model ends its thinking or the budget is spent, then answer.

    The paper's baseline (section 4.3).
    """

    sweeps_budget: ClassVar[bool] = True
    example: ClassVar[str] = "--budget 512"
