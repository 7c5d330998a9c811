from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from cgr.records import Probe, StopCause
from cgr.rules.actions import GO_ON, STOP, Action, ArrayDecisions
from cgr.rules.base import Seen, rule
from cgr.rules.cgr import Cgr
from cgr.rules.level_rule import is_dry
from cgr.rules.limits import CERTAINTY, SHARE, Limits, parameter


@rule("cgr-drought")
@dataclass(frozen=True, kw_only=True)
class CgrDrought(Cgr):
    """As cgr, and stop with the last answer after a drought: long without an answer of at least `floor`.

    `drought` says how long, as a share of the budget. It depends on the model and its questions, so `cgr fit` chooses it;
    at 1, the default, no drought ends the thinking. An answer that is not closed is not given: the rule waits for the next
    one. `span`: the budget that the share refers to; 0: the current budget.
    """

    drought: float = parameter(1.0, SHARE)
    floor: float = parameter(0.5, CERTAINTY)
    span: int = parameter(0, Limits(0))
    give_up_text: ClassVar[str] = "the certainty stayed below {floor:g} for {drought:.0%} of the budget"
    main: ClassVar[str | None] = "drought"
    grid: ClassVar[tuple[float, ...]] = (0.05, 0.075, 0.1, 0.125, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.75, 1.0)
    allowed_loss: ClassVar[float | None] = 0.5
    example: ClassVar[str] = "--set drought=0.2"

    @property
    def sure_at(self) -> float | None:
        return min(self.floor, self.threshold)

    def within(self, budget: int) -> Self:
        return self if self.span else replace(self, span=budget)

    def why(self, cause: StopCause, certainty: float = 0.0) -> str:
        return super().why("gave_up" if cause == "certainty" and certainty < self.threshold else cause, certainty)

    def levels(self, probes: Sequence[Probe]) -> list[float]:
        """After each probe: tokens since the last one with an answer."""
        found: list[float] = []
        answered_at = 0
        for probe in probes:
            answered_at = answered_at if is_dry(probe, self.floor) else probe.at
            found.append(probe.at - answered_at)
        return found

    def is_drought(self, tokens: Any) -> Any:
        """Whether this many tokens without an answer are a drought."""
        return (tokens >= self.drought * self.span) & (self.span > 0) & (self.drought < 1)

    def cut_below(self, seen: Seen) -> float | None:
        """After a drought the next answer is given, however uncertain it is."""
        dry = seen.at - seen.last.at + self.levels(seen.probes)[-1] if seen.probes else seen.at
        return None if self.is_drought(dry) else self.sure_at

    def on_probe(self, seen: Seen) -> Action:
        sure = seen.last.certainty >= self.threshold
        return STOP if seen.last.closed and (sure or self.is_drought(self.levels(seen.probes)[-1])) else GO_ON

    def decide_all(self, recorded: Any) -> ArrayDecisions:
        made, interval = self.made(recorded)
        drought = made & self.is_drought(recorded.levels(self, made))
        sure = made & (recorded.certainty(self) >= self.threshold)
        return ArrayDecisions(made, recorded.closed & (sure | drought), made & False, interval, drought)
