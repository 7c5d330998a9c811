from __future__ import annotations

import math
from dataclasses import dataclass

from cgr.errors import UsageError
from cgr.rules.base import Seen, check_at_least_one, check_threshold, rule
from cgr.rules.cgr import Cgr
from cgr.rules.history import is_dry


@rule("adaptive")
@dataclass(frozen=True, kw_only=True)
class Adaptive(Cgr):
    """As cgr, but ask seldom while there is no hope, and often when the model is nearly sure.

    Before the first probe, and after one that is less certain than `near` or did not close, one interval in `rare` is
    probed; else every one. A probe is put off until all of them, at `cost` tokens each, take no more than the share `cap`
    of the thinking. All probes lie on multiples of the interval, so a recording of those is enough.
    """

    near: float = 0.8
    rare: int = 3
    cap: float = 0.1
    cost: int = 4

    def __post_init__(self) -> None:
        super().__post_init__()
        check_threshold(self.near)
        check_rare(self.rare)
        check_at_least_one("cost", self.cost)
        if not 0 < self.cap <= 1:
            raise UsageError(f"A cap of {self.cap:g} is not a share.", "Use more than 0 and at most 1, such as 0.1.")

    @property
    def sure_at(self) -> float | None:
        """Nearly sure must be told from hopeless; how hopeless does not matter."""
        return min(self.near, self.threshold)

    def next_probe(self, seen: Seen) -> int | None:
        hopeless = not seen.probes or is_dry(seen.last, min(self.near, self.threshold))
        wished = seen.at // self.interval + (self.rare if hopeless else 1)
        afforded = math.ceil((len(seen.probes) + 1) * self.cost / self.cap / self.interval - 1e-9)
        return max(wished, afforded) * self.interval


def check_rare(rare: int) -> None:
    if rare < 1:
        raise UsageError(f"One interval in {rare} cannot be probed.", "Set rare to 1 or more.")
