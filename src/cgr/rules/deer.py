from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from cgr.probing import END_TAG, ProbeStyle
from cgr.records import Probe
from cgr.rules.base import rule
from cgr.rules.level_rule import LevelRule
from cgr.rules.limits import CERTAINTY, COUNT, Limits, parameter
from cgr.rules.marks import Place

DEER_PREFIX = "\n**Final Answer**\n\\boxed"


@rule("deer")
@dataclass(frozen=True, kw_only=True)
class Deer(LevelRule):
    """Probe before each "Wait" or "Alternatively" and stop when the mean probability of the answer exceeds the threshold.

    Yang et al.: Dynamic Early Exit in Reasoning Models (iie-ycx/DEER). The mean is arithmetic (`avg1`), over the answer's
    tokens after the opening brace; `avg2` takes the geometric mean, and 0 unless the model then ends its thinking. At most
    `trials` (10) probes are made. The original then closes the thinking and lets the model write its solution. Here the
    probe's answer is taken, as for every rule, so that no rule pays or saves the tokens of a solution.
    """

    threshold: float = parameter(0.95, CERTAINTY)
    average: Literal["avg1", "avg2"] = parameter("avg1", Limits(options=("avg1", "avg2")))
    trials: int = parameter(10, COUNT)
    tokens: int = parameter(20, COUNT)
    prefix: str = DEER_PREFIX
    stop_text: ClassVar[str] = "the mean probability of the answer exceeded {threshold:g}"
    needs: ClassVar[frozenset[str]] = frozenset({"logprobs"})
    place: ClassVar[Place | None] = "wait"
    main: ClassVar[str | None] = "threshold"
    grid: ClassVar[tuple[float, ...]] = (0.5, 0.7, 0.8, 0.9, 0.95, 0.97, 0.98, 0.99, 0.995, 0.999)

    @property
    def probe_style(self) -> ProbeStyle:
        if self.average == "avg1":
            return ProbeStyle(self.prefix, self.tokens, "mean", "never")
        return ProbeStyle(self.prefix, self.tokens, "geometric-mean", "never", reads="text")

    @property
    def most_probes(self) -> int | None:
        return self.trials

    def levels(self, probes: Sequence[Probe]) -> list[float]:
        if self.average == "avg1":
            return [probe.certainty for probe in probes]
        return [probe.certainty if probe.ended or END_TAG in probe.text else 0.0 for probe in probes]

    def enough(self, level: Any) -> Any:
        return level > self.threshold
