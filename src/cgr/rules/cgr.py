from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from cgr.rules.base import (
    GO_ON,
    INTERVAL,
    STOP,
    THRESHOLD,
    Action,
    Rule,
    Seen,
    check_at_least_one,
    check_threshold,
    next_multiple,
    rule,
)


@rule("cgr")
@dataclass(frozen=True, kw_only=True)
class Cgr(Rule):
    """Ask every few tokens what the answer would be now, and stop when the model is sure of it.

    Nogueira, Sun, Silva, Zumot: Certainty-Guided Reasoning in Large Language Models (Algorithm 1). A probe stops the
    thinking if its answer closed and its certainty is at least the threshold.
    """

    threshold: float = THRESHOLD
    interval: int = INTERVAL
    needs: ClassVar[frozenset[str]] = frozenset({"logprobs"})
    main: ClassVar[str | None] = "threshold"
    grid: ClassVar[tuple[float, ...]] = (0.5, 0.7, 0.8, 0.9, 0.95, 0.96, 0.97, 0.98, 0.99, 0.995, 0.999)

    def __post_init__(self) -> None:
        check_threshold(self.threshold)
        check_at_least_one("interval", self.interval)

    @property
    def sure_at(self) -> float | None:
        return self.threshold

    def next_probe(self, seen: Seen) -> int | None:
        return next_multiple(seen.at, self.interval)

    def on_probe(self, seen: Seen) -> Action:
        probe = seen.last
        return STOP if probe.closed and probe.certainty >= self.threshold else GO_ON
