from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

from cgr.errors import UsageError
from cgr.rules.base import GIVE_UP, GO_ON, Action, Rule, Seen, check_at_least_one, rule

WINDOW = 2048
SHARE = 16  # of the budget, where that is too small for such a window


@rule("deepconf")
@dataclass(frozen=True, kw_only=True)
class DeepConf(Rule):
    """Give up a line of thought whose confidence over a window of tokens falls below that of most others.

    Fu et al.: Deep Think with Confidence (facebookresearch/deepconf). A token's confidence is minus the mean of the 20
    highest log-probabilities there; a group's is the mean over the last `window` tokens, once there are so many. Below
    `floor` the trace is given up, and there is no answer. The floor is the given percentile, over warm-up traces, of
    each one's lowest group (10: high, keeps most; 90: low, keeps few). The lab takes it from a run
    (`cgr.lab.rivals.warm_floor`); live it must be given. It never stops for being sure.
    """

    percentile: float = 10.0
    floor: float | None = None
    window: int | None = None
    needs: ClassVar[frozenset[str]] = frozenset({"thinking_logprobs"})
    inspect_every: ClassVar[int] = 1
    main: ClassVar[str | None] = "percentile"
    grid: ClassVar[tuple[float, ...]] = (90.0, 75.0, 50.0, 25.0, 10.0, 5.0)

    def __post_init__(self) -> None:
        if not 0 <= self.percentile <= 100:
            raise UsageError(f"There is no percentile {self.percentile:g}.", "Use one from 0 to 100.")
        if self.window is not None:
            check_at_least_one("window", self.window)

    def within(self, budget: int) -> Self:
        return self if self.window is not None else replace(self, window=max(1, min(WINDOW, budget // SHARE)))

    def check(self) -> None:
        if self.floor is None:
            raise UsageError(
                "The rule deepconf does not know its floor.",
                "Give one from warm-up traces of the same model: --set floor=... (docs/rules.md says how).",
            )

    def on_thought(self, seen: Seen) -> Action:
        group = last_group(seen.tops, self.window or WINDOW)
        return GIVE_UP if group is not None and self.floor is not None and group < self.floor else GO_ON


def last_group(tops: Sequence[float], window: int) -> float | None:
    """The confidence of the last group of tokens, if there are enough for one; those that nobody sampled count nothing."""
    if len(tops) < window:
        return None
    known = [top for top in tops[-window:] if not math.isnan(top)]
    return -math.fsum(known) / len(known) if known else None
