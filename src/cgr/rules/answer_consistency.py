from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from cgr.records import Probe
from cgr.rules.base import INTERVAL, Seen, check_at_least_one, next_multiple, rule
from cgr.rules.level_rule import LevelRule, agreements


@rule("answer-consistency")
@dataclass(frozen=True, kw_only=True)
class AnswerConsistency(LevelRule):
    """Ask every few tokens, and stop when the same answer came several times in a row, however sure.

    Liu and Wang: Answer Convergence as a Signal for Early Stopping in Reasoning. The original asks at the end of each
    sentence and wants 10 in a row; how many are right for a probe every so many tokens is to be chosen.
    """

    agree: int = 3
    interval: int = INTERVAL
    main: ClassVar[str | None] = "agree"
    grid: ClassVar[tuple[float, ...]] = (2, 3, 4, 5, 6, 8, 10)

    def __post_init__(self) -> None:
        check_at_least_one("interval", self.interval)

    def next_probe(self, seen: Seen) -> int | None:
        return next_multiple(seen.at, self.interval)

    def levels(self, probes: Sequence[Probe]) -> list[float]:
        return agreements(probes)

    def enough(self, level: Any) -> Any:
        return level >= self.agree
