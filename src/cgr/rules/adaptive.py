from __future__ import annotations

import math
from dataclasses import dataclass

from cgr.rules.base import Seen, rule
from cgr.rules.cgr import Cgr
from cgr.rules.level_rule import is_dry
from cgr.rules.limits import CERTAINTY, COUNT, SHARE, parameter


@rule("adaptive")
@dataclass(frozen=True, kw_only=True)
class Adaptive(Cgr):
    """As cgr, but probe rarely while certainty is low, and at every interval when it is near the threshold.

    Before the first probe, and after a probe that did not close or is less certain than `near`, the next probe is `rare`
    intervals away; otherwise one interval. A probe is delayed until all probes, at `cost` tokens each, take at most the
    share `cap` of the thinking. All probes are at multiples of the interval, so a recording on that grid is enough.
    """

    near: float = parameter(0.8, CERTAINTY)
    rare: int = parameter(3, COUNT)
    cap: float = parameter(0.1, SHARE)
    cost: int = parameter(4, COUNT)

    @property
    def probe_text(self) -> str:
        return f"probes at multiples of {self.interval} tokens"

    @property
    def sure_at(self) -> float:
        """Below both `near` and the threshold, how low the certainty is does not matter."""
        return min(self.near, self.threshold)

    def next_probe(self, seen: Seen) -> int | None:
        low = not seen.probes or is_dry(seen.last, self.sure_at)
        wanted = seen.at // self.interval + (self.rare if low else 1)
        affordable = math.ceil((len(seen.probes) + 1) * self.cost / self.cap / self.interval - 1e-9)
        return max(wanted, affordable) * self.interval
