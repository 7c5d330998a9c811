from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from cgr.errors import UsageError
from cgr.rules.actions import GIVE_UP, GO_ON, Action, ArrayDecisions
from cgr.rules.base import Rule, Seen, rule
from cgr.rules.limits import COUNT, Limits, parameter

WINDOW = 2048
WINDOWS_PER_BUDGET = 16  # for budgets that are too small for such a window


@rule("deepconf")
@dataclass(frozen=True, kw_only=True)
class DeepConf(Rule):
    """Give up when the confidence over a window of thinking tokens falls below that of most other traces.

    Fu et al.: Deep Think with Confidence (facebookresearch/deepconf). The confidence of a token is minus the mean of the 20
    highest log-probabilities at its position. A group is the last `window` tokens; its confidence is their mean. Below
    `floor` the rule gives up, without an answer. The floor is a percentile, over warm-up traces, of each trace's lowest
    group (10: high, keeps most traces; 90: low, keeps few). The lab computes it from a run
    (`cgr.lab.fit.warm_floor`); live it must be given. The rule never stops with an answer.
    """

    percentile: float = parameter(10.0, Limits(0, 100))
    floor: float | None = parameter(None, Limits())
    window: int | None = parameter(None, COUNT)
    example: ClassVar[str] = "--set floor=14"
    give_up_text: ClassVar[str] = "the confidence of the thinking fell below {floor:g}"
    needs: ClassVar[frozenset[str]] = frozenset({"thinking_logprobs"})
    inspect_every: ClassVar[int] = 1
    main: ClassVar[str | None] = "percentile"
    grid: ClassVar[tuple[float, ...]] = (90.0, 75.0, 50.0, 25.0, 10.0, 5.0)

    def within(self, budget: int) -> Self:
        window = max(1, min(WINDOW, budget // WINDOWS_PER_BUDGET))
        return self if self.window is not None else replace(self, window=window)

    def on_recording(self, recorded: Any) -> Self:
        return self if self.floor is not None else replace(self, floor=self.warm_floor(recorded))

    def check(self) -> None:
        if self.floor is None:
            raise UsageError(
                "The rule deepconf does not know its floor.",
                "Give one from warm-up traces of the same model: --set floor=... (docs/rules.md says how).",
            )

    def on_thought(self, seen: Seen) -> Action:
        group = last_group(seen.tops, self.window or WINDOW)
        return GIVE_UP if group is not None and self.floor is not None and group < self.floor else GO_ON

    def decide_all(self, recorded: Any) -> ArrayDecisions:
        import numpy as np

        window, lowest = self.window or WINDOW, self._lowest(recorded)
        floor = self.warm_floor(recorded) if self.floor is None else self.floor
        first = [int(np.searchsorted(-one, -floor, side="right")) for one in lowest]
        places = [at + window if at < len(one) else -1 for at, one in zip(first, lowest, strict=True)]
        return ArrayDecisions(given_up_at=np.array(places, dtype=np.int64))

    def warm_floor(self, recorded: Any) -> float:
        """The percentile of the lowest groups of the warm-up traces, which are the first trace of each question."""
        import numpy as np

        lowest = self._lowest(recorded)
        known = [end for row in recorded.first_traces for end in lowest[row][-1:] if math.isfinite(end)]
        return float(np.percentile(known, self.percentile)) if known else -math.inf

    def _lowest(self, recorded: Any) -> list[Any]:
        """Of each trace, the lowest confidence of any group so far, after each token from the first full window on."""
        size = self.window or WINDOW
        found: list[Any] = recorded.kept(("deepconf", size), lambda: [lowest_groups(one, size) for one in recorded.tops])
        return found


def last_group(tops: Sequence[float], window: int) -> float | None:
    """The confidence of the last `window` tokens; None if there are fewer. Tokens that were not sampled do not count."""
    if len(tops) < window:
        return None
    known = [top for top in tops[-window:] if not math.isnan(top)]
    return -math.fsum(known) / len(known) if known else None


def lowest_groups(tops: Sequence[float], window: int) -> Any:
    """The lowest `last_group` so far, after each token from the first full window on, as an array."""
    import numpy as np

    values = np.array(tops, dtype=np.float64)
    if len(values) < window:
        return np.zeros(0)
    known = ~np.isnan(values)
    sums, counts = (np.concatenate(([0.0], np.cumsum(one))) for one in (np.where(known, -values, 0.0), known))
    total, count = sums[window:] - sums[:-window], counts[window:] - counts[:-window]
    groups = np.divide(total, count, out=np.full(len(total), np.inf), where=count > 0)
    return np.minimum.accumulate(groups)
