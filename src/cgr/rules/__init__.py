"""Stopping rules, one small file each. Add your own with `@rule("name")`, or by an entry point in group `cgr.rules`."""

from cgr.rules.base import (
    GIVE_UP,
    GO_ON,
    STOP,
    WAIT,
    Action,
    GiveUp,
    GoOn,
    KeepThinking,
    Rule,
    Seen,
    Stop,
    known_rules,
    make_rule,
    next_multiple,
    rule,
)
from cgr.rules.budget_forcing import BudgetForcing
from cgr.rules.cgr import Cgr
from cgr.rules.cgr_forced import CgrForced
from cgr.rules.fixed_budget import FixedBudget
from cgr.rules.no_thinking import NoThinking

__all__ = [
    "GIVE_UP",
    "GO_ON",
    "STOP",
    "WAIT",
    "Action",
    "BudgetForcing",
    "Cgr",
    "CgrForced",
    "FixedBudget",
    "GiveUp",
    "GoOn",
    "KeepThinking",
    "NoThinking",
    "Rule",
    "Seen",
    "Stop",
    "known_rules",
    "make_rule",
    "next_multiple",
    "rule",
]
