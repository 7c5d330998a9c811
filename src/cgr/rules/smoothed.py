from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from cgr.records import Probe
from cgr.rules.actions import GO_ON, STOP, Action
from cgr.rules.base import Seen, rule
from cgr.rules.cgr import Cgr
from cgr.rules.level_rule import is_dry
from cgr.rules.limits import CERTAINTY, SHARE, parameter
from cgr.rules.same_answer import same_answer


@rule("smoothed")
@dataclass(frozen=True, kw_only=True)
class Smoothed(Cgr):
    """As cgr, with an exponential mean of the certainty of one answer, so that one lucky probe does not stop.

    The mean starts at `floor` and moves by the share `weight` towards each new certainty. It starts again when the answer
    changes, and after a probe that did not close or is less certain than `floor`. The rule stops at the threshold.
    """

    threshold: float = parameter(0.95, CERTAINTY)
    weight: float = parameter(0.8, SHARE)
    floor: float = parameter(0.5, CERTAINTY)
    stop_text: ClassVar[str] = "the mean certainty of the answer reached {threshold:g}"

    @property
    def sure_at(self) -> float | None:
        return self.floor

    def on_probe(self, seen: Seen) -> Action:
        dry = is_dry(seen.last, self.floor)
        return STOP if not dry and self.mean(seen.probes) >= self.threshold else GO_ON

    def mean(self, probes: Sequence[Probe]) -> float:
        """The exponential mean after these probes."""
        mean, answer = self.floor, ""
        for probe in probes:
            if is_dry(probe, self.floor):
                mean, answer = self.floor, ""
                continue
            if not same_answer(answer, probe.answer):
                mean = self.floor
            mean, answer = mean + self.weight * (probe.certainty - mean), probe.answer
        return mean
