from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar, Self

from cgr.rules.actions import GIVE_UP, STOP, Action
from cgr.rules.base import Seen, rule
from cgr.rules.cgr import Cgr
from cgr.rules.level_rule import is_dry
from cgr.rules.limits import CERTAINTY, COUNT, parameter

FLOORS = (0.2, 0.3, 0.4, 0.5, 0.7)
PATIENCES = (0.125, 0.2, 0.25, 0.3, 0.4, 0.5, 0.65, 0.8, 1)  # as shares of a budget's probes


@rule("give-up")
@dataclass(frozen=True, kw_only=True)
class GiveUpEarly(Cgr):
    """As cgr, and give up, without an answer, when certainty stays low.

    The rule gives up when `patience` probes in a row did not close or are less certain than `floor`. `cgr fit` chooses both
    for a penalty on wrong answers.
    """

    floor: float = parameter(0.3, CERTAINTY)
    patience: int = parameter(12, COUNT)
    give_up_text: ClassVar[str] = "{patience} probes in a row were less certain than {floor:g}"

    @property
    def sure_at(self) -> float | None:
        """Below both the floor and the threshold, how low the certainty is does not matter."""
        return min(self.floor, self.threshold)

    def on_probe(self, seen: Seen) -> Action:
        action = super().on_probe(seen)
        last = seen.probes[-self.patience :]
        hopeless = len(last) == self.patience and all(is_dry(probe, self.floor) for probe in last)
        return GIVE_UP if hopeless and action != STOP else action

    def candidates(self, budget: int) -> Iterator[Self]:
        most = max(2, budget // self.interval)
        patiences = sorted({max(1, round(most * share)) for share in PATIENCES})
        return (replace(self, floor=floor, patience=patience) for floor in FLOORS for patience in patiences)
