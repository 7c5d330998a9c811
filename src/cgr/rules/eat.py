from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from cgr.errors import NotRecorded, UsageError
from cgr.probing import END_TAG, Asks
from cgr.records import Probe
from cgr.rules.base import rule
from cgr.rules.level_rule import LevelRule, exponential
from cgr.rules.marks import Place

PREFIX = f"\n{END_TAG}\n"


@rule("eat")
@dataclass(frozen=True, kw_only=True)
class Eat(LevelRule):
    """Close the thinking on trial after each paragraph, and stop when the entropy of what would come next has settled.

    Wang et al.: Entropy After </Think> for reasoning model early exiting (xidulu/EAT). H is the entropy of the next
    token in bits, M its exponential mean (from the first H on), V the exponential variance around it (from 0 on): M = a
    H + (1 - a) M, then V = a (H - M)^2 + (1 - a) V. It stops when V < delta, from the probe number `min_steps` on. A
    probe holds no answer, so it is asked for at the end, with the thinking closed, and counts. Where an engine gives
    the likeliest tokens only, H is the least that the entropy can be: what is left over counts as one token.
    """

    delta: float = 1e-4
    alpha: float = 0.2
    min_steps: int = 4
    needs: ClassVar[frozenset[str]] = frozenset({"logprobs"})
    place: ClassVar[Place | None] = "paragraph"
    answers: ClassVar[bool] = False
    main: ClassVar[str | None] = "delta"
    grid: ClassVar[tuple[float, ...]] = (1.0, 0.3, 0.1, 0.03, 0.01, 1e-3, 1e-4, 1e-5, 1e-6)

    def __post_init__(self) -> None:
        if not 0 < self.alpha <= 1:
            raise UsageError(f"An alpha of {self.alpha:g} is no weight.", "Use more than 0 and at most 1.")

    @property
    def asks(self) -> Asks:
        return Asks(PREFIX, reads="entropy", close_think="never")

    def levels(self, probes: Sequence[Probe]) -> list[float]:
        entropies = [_entropy(probe) for probe in probes]
        means = exponential(entropies, self.alpha)
        squares = [(entropy - mean) ** 2 for entropy, mean in zip(entropies, means, strict=True)]
        variances = exponential([0.0, *squares[1:]], self.alpha)
        return [math.inf if number < self.min_steps else v for number, v in enumerate(variances, 1)]

    def enough(self, level: Any) -> Any:
        return level < self.delta


def _entropy(probe: Probe) -> float:
    if probe.entropy is None:
        raise NotRecorded(
            f"The probe at token {probe.at} has no entropy.", "Use an engine that gives it: see `cgr doctor`."
        )
    return probe.entropy
