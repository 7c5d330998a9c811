from __future__ import annotations

from dataclasses import dataclass

from cgr.rules.base import GIVE_UP, STOP, Action, Seen, check_at_least_one, check_threshold, rule
from cgr.rules.cgr import Cgr
from cgr.rules.history import is_dry


@rule("give-up")
@dataclass(frozen=True, kw_only=True)
class GiveUpEarly(Cgr):
    """As cgr, and give up where there is no hope: no answer, and no more thinking.

    It gives up when `patience` probes in a row are less certain than `floor` or did not close. `cgr fit` chooses both for a
    penalty on wrong answers.
    """

    floor: float = 0.3
    patience: int = 12

    def __post_init__(self) -> None:
        super().__post_init__()
        check_threshold(self.floor)
        check_at_least_one("patience", self.patience)

    @property
    def sure_at(self) -> float | None:
        """Hope must be told from none; how little there is does not matter."""
        return min(self.floor, self.threshold)

    def on_probe(self, seen: Seen) -> Action:
        action = super().on_probe(seen)
        last = seen.probes[-self.patience :]
        hopeless = len(last) == self.patience and all(is_dry(probe, self.floor) for probe in last)
        return GIVE_UP if hopeless and action != STOP else action
