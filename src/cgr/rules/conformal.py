from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from cgr.records import Probe
from cgr.rules.base import rule
from cgr.rules.cgr import Cgr
from cgr.rules.level_rule import exponential_means
from cgr.rules.limits import CERTAINTY, COUNT, SHARE, parameter


@rule("conformal")
@dataclass(frozen=True, kw_only=True)
class Conformal(Cgr):
    """Stop when an exponential mean of the certainty is high, and give up when it is below a rising floor.

    Wang et al.: Conformal Thinking (xidulu/reasoning_risk_control). The newest certainty has the weight .95; an answer that
    did not close has certainty 0. The threshold (lambda) is meant to be calibrated on other questions
    (`cgr.lab.fit.calibrated_threshold`). In the first half of `over` tokens (by default the budget) there
    is no floor; then it rises linearly from 0 to `floor`. At or below it the rule gives up and abstains.
    """

    weight: float = parameter(0.95, SHARE)
    floor: float = parameter(0.1, CERTAINTY)
    over: int | None = parameter(None, COUNT)
    stop_text: ClassVar[str] = "the mean certainty reached {threshold:g}"
    give_up_text: ClassVar[str] = "the mean certainty stayed too low"

    def within(self, budget: int) -> Self:
        return self if self.over is not None else replace(self, over=budget)

    def levels(self, probes: Sequence[Probe]) -> list[float]:
        return exponential_means([probe.certainty if probe.closed else 0.0 for probe in probes], self.weight)

    def hopeless(self, level: Any, at: Any) -> Any:
        if not self.over:
            return super().hopeless(level, at)
        risen = 2 * at / self.over - 1
        return (risen > 0) & (level <= self.floor * risen)
