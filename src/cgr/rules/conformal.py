from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from cgr.errors import UsageError
from cgr.records import Probe
from cgr.rules.base import INTERVAL, THRESHOLD, Seen, check_at_least_one, check_threshold, next_multiple, rule
from cgr.rules.level_rule import LevelRule, exponential


@rule("conformal")
@dataclass(frozen=True, kw_only=True)
class Conformal(LevelRule):
    """Stop when an exponential mean of the certainty is high, give up when it stays under a floor that rises.

    Wang et al.: Conformal Thinking (xidulu/reasoning_risk_control). The mean gives the newest certainty a weight of
    .95; an answer that did not close has none. The threshold (lambda) is meant to be calibrated on held-out questions
    (`cgr.lab.rivals.calibrated_threshold`). There is no floor in the first half of `over` tokens (the budget), then it
    rises evenly from 0 to `floor`; at or under it the rule gives up and abstains.
    """

    threshold: float = THRESHOLD
    interval: int = INTERVAL
    weight: float = 0.95
    floor: float = 0.1
    over: int | None = None
    needs: ClassVar[frozenset[str]] = frozenset({"logprobs"})
    main: ClassVar[str | None] = "threshold"
    grid: ClassVar[tuple[float, ...]] = (0.5, 0.7, 0.8, 0.9, 0.95, 0.96, 0.97, 0.98, 0.99, 0.995, 0.999)

    def __post_init__(self) -> None:
        check_threshold(self.threshold)
        check_threshold(self.floor)
        check_at_least_one("interval", self.interval)
        if not 0 < self.weight <= 1:
            raise UsageError(f"A weight of {self.weight:g} is none.", "Use more than 0 and at most 1.")

    def within(self, budget: int) -> Self:
        return self if self.over is not None else replace(self, over=budget)

    def next_probe(self, seen: Seen) -> int | None:
        return next_multiple(seen.at, self.interval)

    def levels(self, probes: Sequence[Probe]) -> list[float]:
        return exponential([probe.certainty if probe.closed else 0.0 for probe in probes], self.weight)

    def enough(self, level: Any) -> Any:
        return level >= self.threshold

    def hopeless(self, level: Any, at: Any) -> Any:
        if not self.over:
            return super().hopeless(level, at)
        risen = 2 * at / self.over - 1
        return (risen > 0) & (level <= self.floor * risen)
