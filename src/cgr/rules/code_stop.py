from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from cgr.records import Probe, StopCause
from cgr.rules.actions import GO_ON, STOP, Action, ArrayDecisions
from cgr.rules.base import Seen, rule
from cgr.rules.cgr import Cgr
from cgr.rules.limits import CERTAINTY, COUNT, Limits, parameter


@rule("code-stop")
@dataclass(frozen=True, kw_only=True)
class CodeStop(Cgr):
    """Stop at a threshold that changes over the first probes, or when the certainty was unstable for too long.

    After Hosseini, Nawathe, Salmani, Razaviyayn, Feizi: Early Stopping for Large Reasoning Models via Confidence Dynamics
    (CoDE-Stop). The threshold goes from `first` to `threshold` over `ramp` probes. A probe is unstable if twice its
    certainty minus that of the probe before is below `delta`. Each unstable probe adds 1 + log(position / its position) to
    a score, so that early ones count more as the thinking goes on; from the third probe on the rule stops when the
    score is at least `limit`. An answer that did not close has certainty 0. Probes are those of `cgr`.
    """

    threshold: float = parameter(0.95, CERTAINTY)
    first: float = parameter(0.9, CERTAINTY)
    ramp: int = parameter(2, COUNT)
    delta: float = parameter(0.55, Limits(0, 1))
    limit: float = parameter(8.0, Limits(0, above=True))
    stop_text: ClassVar[str] = "the certainty reached the threshold"
    give_up_text: ClassVar[str] = "the certainty was unstable for too long"
    main: ClassVar[str | None] = "limit"
    grid: ClassVar[tuple[float, ...]] = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96)

    @property
    def sure_at(self) -> float | None:
        """How low a certainty is matters: the next probe is compared with it."""
        return None

    def why(self, cause: StopCause, certainty: float = 0.0) -> str:
        low = min(self.first, self.threshold)
        return super().why("gave_up" if cause == "certainty" and certainty < low else cause, certainty)

    def ramped(self, number: Any) -> Any:
        """The threshold at the probe after this number of others."""
        share = (number < self.ramp) * (1 - number / self.ramp)
        return self.threshold + (self.first - self.threshold) * share

    def levels(self, probes: Sequence[Probe]) -> list[float]:
        """The score after each probe: with n unstable ones, n (1 + log position) minus the sum of their log positions."""
        scores, count, logs = [], 0, 0.0
        for number, probe in enumerate(probes):
            if number and 2 * _certainty(probe) - _certainty(probes[number - 1]) < self.delta:
                count, logs = count + 1, logs + math.log(probe.at)
            scores.append(count * (1 + math.log(probe.at)) - logs if number > 1 else 0.0)
        return scores

    def on_probe(self, seen: Seen) -> Action:
        sure = seen.last.certainty >= self.ramped(len(seen.probes) - 1)
        return STOP if seen.last.closed and (sure or self.levels(seen.probes)[-1] >= self.limit) else GO_ON

    def decide_all(self, recorded: Any) -> ArrayDecisions:
        made, interval = self.made(recorded)
        sure = recorded.certainty(self) >= self.ramped(made.cumsum(axis=1) - 1)
        unstable = recorded.levels(self, made) >= self.limit
        return ArrayDecisions(made, made & recorded.closed & (sure | unstable), made & False, interval)


def _certainty(probe: Probe) -> float:
    return probe.certainty if probe.closed else 0.0
