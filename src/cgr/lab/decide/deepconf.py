"""The confidence of groups of thinking tokens, on whole arrays: what `deepconf` looks at."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from cgr.lab.decide.columns import Columns, Floats, Ints
from cgr.lab.decide.replay import Decided


@dataclass(frozen=True, eq=False)
class Groups:
    """Of each trace, the lowest confidence of any group of `window` tokens so far: from the first on, it only falls."""

    window: int
    so_far: tuple[Floats, ...]

    @classmethod
    def of(cls, tops: Iterable[Iterable[float]], window: int) -> Groups:
        return cls(window, tuple(_lowest(np.array(tuple(one), dtype=np.float64), window) for one in tops))

    @property
    def lowest(self) -> Floats:
        """Of each whole trace; infinite where it is too short for a group."""
        return np.array([one[-1] if len(one) else np.inf for one in self.so_far], dtype=np.float64)

    def first_below(self, floor: float) -> Ints:
        """After how many tokens the first group is below the floor; -1 where none is."""
        places = [int(np.searchsorted(-one, -floor, side="right")) for one in self.so_far]
        found = zip(places, self.so_far, strict=True)
        return np.array([at + self.window if at < len(one) else -1 for at, one in found], dtype=np.int64)


def _lowest(tops: Floats, window: int) -> Floats:
    """Tokens that nobody sampled have no confidence and count nothing; a group of nothing else is never low."""
    if len(tops) < window:
        return np.zeros(0)
    known = ~np.isnan(tops)
    sums, counts = (np.concatenate(([0.0], np.cumsum(one))) for one in (np.where(known, -tops, 0.0), known))
    total, count = sums[window:] - sums[:-window], counts[window:] - counts[:-window]
    groups = np.divide(total, count, out=np.full(len(total), np.inf), where=count > 0)
    lowest: Floats = np.minimum.accumulate(groups)
    return lowest


def decide(groups: Groups, columns: Columns, floor: float) -> Decided:
    """Given up where a group falls below the floor; else the answer at the end. No probes are made."""
    at = groups.first_below(floor)
    up, nothing = at >= 0, np.zeros(len(columns), dtype=np.int64)
    return Decided(
        at=np.where(up, at, columns.natural),
        sure=np.zeros(len(columns), dtype=np.bool_),
        certainty=np.where(up, 0.0, columns.final_certainty),
        closed=columns.final_closed & ~up,
        right=columns.final_right & ~up,
        probe_tokens=nothing,
        suffix_tokens=nothing,
        gave_up=up,
    )
