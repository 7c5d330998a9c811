from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from cgr.rules.base import Rule, rule


@rule("no-thinking")
@dataclass(frozen=True, kw_only=True)
class NoThinking(Rule):
    """Close the thinking before it starts and answer at once: the lower bound for all rules."""

    thinks: ClassVar[bool] = False
