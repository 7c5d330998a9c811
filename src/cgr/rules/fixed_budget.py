from __future__ import annotations

from dataclasses import dataclass

from cgr.rules.base import Rule, rule


@rule("fixed-budget")
@dataclass(frozen=True, kw_only=True)
class FixedBudget(Rule):
    """Think until the model ends by itself or the budget is spent, then answer.

    The paper's baseline (section 4.3).
    """
