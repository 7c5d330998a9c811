from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from cgr.rules.base import Rule, rule


@rule("no-thinking")
@dataclass(frozen=True, kw_only=True)
class NoThinking(Rule):
    """Close the thinking before it begins and answer at once: the floor that every rule must beat."""

    thinks: ClassVar[bool] = False
