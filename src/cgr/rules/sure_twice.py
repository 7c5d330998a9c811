from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

from cgr.rules.actions import GO_ON, STOP, Action
from cgr.rules.base import Seen, rule
from cgr.rules.cgr import Cgr
from cgr.rules.level_rule import is_dry
from cgr.rules.limits import CERTAINTY, COUNT, parameter
from cgr.rules.same_answer import same_answer


@rule("sure-twice")
@dataclass(frozen=True, kw_only=True)
class SureTwice(Cgr):
    """As cgr, but the same answer must be certain in several probes in a row, so that one lucky probe does not stop.

    `agree` probes in a row must close with the same answer, each with a certainty of at least the threshold, which can
    therefore be lower. With `rising`, none of them may be less certain than the one before.
    """

    threshold: float = parameter(0.95, CERTAINTY)
    agree: int = parameter(2, COUNT)
    rising: bool = False
    stop_text: ClassVar[str] = "{agree} probes in a row had the same answer with a certainty of at least {threshold:g}"

    def on_probe(self, seen: Seen) -> Action:
        last = seen.probes[-self.agree :]
        sure = len(last) == self.agree and not any(is_dry(probe, self.threshold) for probe in last)
        alike = all(same_answer(last[0].answer, probe.answer) for probe in last)
        falls = self.rising and any(later.certainty < earlier.certainty for earlier, later in pairwise(last))
        return STOP if sure and alike and not falls else GO_ON
