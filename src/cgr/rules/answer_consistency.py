from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from cgr.records import Probe
from cgr.rules.base import INTERVAL, rule
from cgr.rules.level_rule import LevelRule, agreements
from cgr.rules.limits import COUNT, parameter


@rule("answer-consistency")
@dataclass(frozen=True, kw_only=True)
class AnswerConsistency(LevelRule):
    """Probe every `interval` tokens and stop when `agree` probes in a row give the same answer, at any certainty.

    Liu and Wang: Answer Convergence as a Signal for Early Stopping in Reasoning. The original probes at the end of each
    sentence and needs 10 in a row; on a grid of tokens the right number is to be chosen.
    """

    agree: int = parameter(3, COUNT)
    interval: int = parameter(INTERVAL, COUNT)
    stop_text: ClassVar[str] = "{agree} probes in a row gave the same answer"
    main: ClassVar[str | None] = "agree"
    grid: ClassVar[tuple[float, ...]] = (2, 3, 4, 5, 6, 8, 10)

    def levels(self, probes: Sequence[Probe]) -> list[float]:
        return agreements(probes)
