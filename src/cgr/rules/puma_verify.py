from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

from cgr.probing import ProbeStyle
from cgr.records import Probe
from cgr.rules.base import rule
from cgr.rules.cgr import Cgr
from cgr.rules.limits import CERTAINTY, parameter
from cgr.rules.same_answer import same_answer


@rule("puma-verify")
@dataclass(frozen=True, kw_only=True)
class PumaVerify(Cgr):
    """Probe every `interval` tokens and stop when the next probe confirms a confident answer.

    The last step of PUMA (giovanni-vaccarino/PUMA). A probe whose geometric mean probability is at least the threshold is a
    candidate. The next probe confirms it by the same answer with a confidence at most `drop` lower.
    """

    threshold: float = parameter(0.98, CERTAINTY)
    drop: float = parameter(0.03, CERTAINTY)
    stop_text: ClassVar[str] = "a second probe confirmed an answer of at least {threshold:g}"
    style: ClassVar[ProbeStyle] = ProbeStyle(aggregate="geometric-mean")

    def levels(self, probes: Sequence[Probe]) -> list[float]:
        """At each probe, the confidence of the one before if this one confirms it, else -1."""
        confirmed = [one.certainty if self._confirms(one, two) else -1.0 for one, two in pairwise(probes)]
        return [-1.0, *confirmed] if probes else []

    def _confirms(self, candidate: Probe, probe: Probe) -> bool:
        near = probe.certainty >= candidate.certainty - self.drop
        return candidate.valid and probe.valid and near and same_answer(candidate.answer, probe.answer)
