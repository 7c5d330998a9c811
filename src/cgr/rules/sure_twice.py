from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from cgr.errors import UsageError
from cgr.rules.base import GO_ON, STOP, Action, Seen, rule
from cgr.rules.cgr import Cgr
from cgr.rules.history import is_dry, same


@rule("sure-twice")
@dataclass(frozen=True, kw_only=True)
class SureTwice(Cgr):
    """As cgr, but one lucky probe is not enough: the same answer must be sure twice in a row.

    `agree` probes in a row must close with the same answer, each at least as certain as the threshold, which can be lower
    for that. With `rising`, none of them may be less certain than the one before.
    """

    threshold: float = 0.95
    agree: int = 2
    rising: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.agree < 1:
            raise UsageError(f"{self.agree} answers cannot agree.", "Set agree to 1 or more.")

    def on_probe(self, seen: Seen) -> Action:
        last = seen.probes[-self.agree :]
        sure = len(last) == self.agree and not any(is_dry(probe, self.threshold) for probe in last)
        alike = all(same(last[0].answer, probe.answer) for probe in last)
        falls = self.rising and any(later.certainty < earlier.certainty for earlier, later in pairwise(last))
        return STOP if sure and alike and not falls else GO_ON
