from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from cgr.rules.base import INTERVAL, THRESHOLD, rule
from cgr.rules.level_rule import LevelRule
from cgr.rules.limits import CERTAINTY, COUNT, parameter


@rule("cgr")
@dataclass(frozen=True, kw_only=True)
class Cgr(LevelRule):
    """Probe every `interval` tokens and stop when the certainty of a closed answer reaches the threshold.

    Nogueira, Sun, Silva, Zumot: Certainty-Guided Reasoning in Large Language Models (Algorithm 1).
    """

    threshold: float = parameter(THRESHOLD, CERTAINTY)
    interval: int = parameter(INTERVAL, COUNT)
    stop_text: ClassVar[str] = "the certainty reached {threshold:g}"
    needs: ClassVar[frozenset[str]] = frozenset({"logprobs"})
    main: ClassVar[str | None] = "threshold"
    grid: ClassVar[tuple[float, ...]] = (0.5, 0.7, 0.8, 0.9, 0.95, 0.96, 0.97, 0.98, 0.99, 0.995, 0.999)
