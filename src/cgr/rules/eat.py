from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from cgr.errors import NotRecorded
from cgr.probing import END_TAG, ProbeStyle
from cgr.records import Probe
from cgr.rules.base import rule
from cgr.rules.level_rule import LevelRule, exponential_means
from cgr.rules.limits import COUNT, SHARE, Limits, parameter
from cgr.rules.marks import Place


@rule("eat")
@dataclass(frozen=True, kw_only=True)
class Eat(LevelRule):
    """Close the thinking on trial after each paragraph and stop when the entropy of the next token is stable.

    Wang et al.: Entropy After </Think> for reasoning model early exiting (xidulu/EAT). H is the entropy of the next token
    in bits. M is its exponential mean, starting at the first H: M = a H + (1 - a) M. V is the exponential variance,
    starting at 0: V = a (H - M)^2 + (1 - a) V. The rule stops when V < delta, from probe number `min_steps` on. A probe
    holds no answer, so the model is asked for one after the stop, with the thinking closed; its tokens count. If an engine
    gives only the likeliest tokens, H is a lower bound: the remaining probability counts as one token.
    """

    delta: float = parameter(1e-4, Limits(0))
    alpha: float = parameter(0.2, SHARE)
    min_steps: int = parameter(4, COUNT)
    stop_text: ClassVar[str] = "the entropy of the next token was stable"
    needs: ClassVar[frozenset[str]] = frozenset({"logprobs"})
    place: ClassVar[Place | None] = "paragraph"
    answers: ClassVar[bool] = False
    main: ClassVar[str | None] = "delta"
    grid: ClassVar[tuple[float, ...]] = (1.0, 0.3, 0.1, 0.03, 0.01, 1e-3, 1e-4, 1e-5, 1e-6)
    style: ClassVar[ProbeStyle] = ProbeStyle(f"\n{END_TAG}\n", reads="entropy", close_think="never")

    def levels(self, probes: Sequence[Probe]) -> list[float]:
        entropies = [_entropy(probe) for probe in probes]
        means = exponential_means(entropies, self.alpha)
        squares = [(entropy - mean) ** 2 for entropy, mean in zip(entropies, means, strict=True)]
        variances = exponential_means([0.0, *squares[1:]], self.alpha) if probes else []
        return [math.inf if number < self.min_steps else v for number, v in enumerate(variances, 1)]

    def enough(self, level: Any) -> Any:
        return level < self.delta


def _entropy(probe: Probe) -> float:
    if probe.entropy is None:
        raise NotRecorded(
            f"The probe at token {probe.at} has no entropy.", "Use an engine that gives it: see `cgr doctor`."
        )
    return probe.entropy
