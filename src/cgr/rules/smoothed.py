from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cgr.errors import UsageError
from cgr.records import Probe
from cgr.rules.base import GO_ON, STOP, Action, Seen, check_threshold, rule
from cgr.rules.cgr import Cgr
from cgr.rules.history import is_dry, same


@rule("smoothed")
@dataclass(frozen=True, kw_only=True)
class Smoothed(Cgr):
    """As cgr, but by an exponential mean of the certainty of one answer, against one lucky probe.

    The mean begins at `floor` and moves by the share `weight` towards each new certainty. It begins anew when the answer
    changes, and after a probe that is less certain than `floor` or did not close. It stops at the threshold.
    """

    threshold: float = 0.95
    weight: float = 0.8
    floor: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        check_threshold(self.floor)
        if not 0 < self.weight <= 1:
            raise UsageError(f"A weight of {self.weight:g} is not a share.", "Use more than 0 and at most 1, such as 0.8.")

    @property
    def sure_at(self) -> float | None:
        return self.floor

    def on_probe(self, seen: Seen) -> Action:
        dry = is_dry(seen.last, self.floor)
        return STOP if not dry and self.mean(seen.probes) >= self.threshold else GO_ON

    def mean(self, probes: Sequence[Probe]) -> float:
        mean, answer = self.floor, ""
        for probe in probes:
            if is_dry(probe, self.floor):
                mean, answer = self.floor, ""
                continue
            if not same(answer, probe.answer):
                mean = self.floor
            mean, answer = mean + self.weight * (probe.certainty - mean), probe.answer
        return mean
