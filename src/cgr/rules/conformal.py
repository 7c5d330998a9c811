from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from cgr.records import Probe
from cgr.rules.base import CERTAINTY, COUNT, INTERVAL, SHARE, THRESHOLD, parameter, rule
from cgr.rules.level_rule import LevelRule, exponential_means


@rule("conformal")
@dataclass(frozen=True, kw_only=True)
class Conformal(LevelRule):
    """Stop when an exponential mean of the certainty is high, and give up when it is below a rising floor.

    Wang et al.: Conformal Thinking (xidulu/reasoning_risk_control). The newest certainty has the weight .95; an answer that
    did not close has certainty 0. The threshold (lambda) is meant to be calibrated on other questions
    (`cgr.lab.decide.risk_control.calibrated_threshold`). In the first half of `over` tokens (by default the budget) there
    is no floor; then it rises linearly from 0 to `floor`. At or below it the rule gives up and abstains.
    """

    threshold: float = parameter(THRESHOLD, CERTAINTY)
    interval: int = parameter(INTERVAL, COUNT)
    weight: float = parameter(0.95, SHARE)
    floor: float = parameter(0.1, CERTAINTY)
    over: int | None = None
    needs: ClassVar[frozenset[str]] = frozenset({"logprobs"})
    main: ClassVar[str | None] = "threshold"
    grid: ClassVar[tuple[float, ...]] = (0.5, 0.7, 0.8, 0.9, 0.95, 0.96, 0.97, 0.98, 0.99, 0.995, 0.999)

    def within(self, budget: int) -> Self:
        return self if self.over is not None else replace(self, over=budget)

    def levels(self, probes: Sequence[Probe]) -> list[float]:
        return exponential_means([probe.certainty if probe.closed else 0.0 for probe in probes], self.weight)

    def hopeless(self, level: Any, at: Any) -> Any:
        if not self.over:
            return super().hopeless(level, at)
        risen = 2 * at / self.over - 1
        return (risen > 0) & (level <= self.floor * risen)
