from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

from cgr.probing import Asks
from cgr.records import Probe
from cgr.rules.base import INTERVAL, Seen, check_at_least_one, check_threshold, next_multiple, rule
from cgr.rules.level_rule import LevelRule
from cgr.rules.same_answer import same_answer


@rule("puma-verify")
@dataclass(frozen=True, kw_only=True)
class PumaVerify(LevelRule):
    """Ask every few tokens, and stop when a confident answer is confirmed by the next probe.

    The last step of PUMA (giovanni-vaccarino/PUMA). A probe whose geometric mean confidence is at least the threshold is
    only a candidate; it stands if the next one gives the same answer with a confidence no more than `drop` lower.
    """

    threshold: float = 0.98
    interval: int = INTERVAL
    drop: float = 0.03
    needs: ClassVar[frozenset[str]] = frozenset({"logprobs"})
    main: ClassVar[str | None] = "threshold"
    grid: ClassVar[tuple[float, ...]] = (0.5, 0.7, 0.8, 0.9, 0.95, 0.96, 0.97, 0.98, 0.99, 0.995, 0.999)

    def __post_init__(self) -> None:
        check_threshold(self.threshold)
        check_at_least_one("interval", self.interval)

    @property
    def asks(self) -> Asks:
        return Asks(aggregate="geometric-mean")

    def next_probe(self, seen: Seen) -> int | None:
        return next_multiple(seen.at, self.interval)

    def levels(self, probes: Sequence[Probe]) -> list[float]:
        """The confidence that was confirmed at each probe: that of the one before, or less than any."""
        confirmed = [one.certainty if self._confirms(one, two) else -1.0 for one, two in pairwise(probes)]
        return [-1.0, *confirmed] if probes else []

    def _confirms(self, candidate: Probe, probe: Probe) -> bool:
        near = probe.certainty >= candidate.certainty - self.drop
        return candidate.valid and probe.valid and near and same_answer(candidate.answer, probe.answer)

    def enough(self, level: Any) -> Any:
        return level >= self.threshold
