"""Rules that hold one number against a threshold.

`levels` says what a row of probes comes to, one number each; `enough` whether such a number stops the thinking. The loop
asks for the last one. The lab has all numbers of all traces computed once, and holds them against every threshold.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cgr.records import Probe
from cgr.rules.base import GIVE_UP, GO_ON, STOP, Action, Rule, Seen
from cgr.rules.same_answer import same_answer


@dataclass(frozen=True, kw_only=True)
class LevelRule(Rule):
    """`levels` must not depend on the main parameter, and the n-th level only on the first n probes. `enough` and
    `hopeless` are given numbers, or arrays of them."""

    @property
    def most_probes(self) -> int | None:
        return None

    def levels(self, probes: Sequence[Probe]) -> list[float]:
        raise NotImplementedError

    def enough(self, level: Any) -> Any:
        raise NotImplementedError

    def hopeless(self, level: Any, at: Any) -> Any:
        """Whether to give up at this level after so many tokens."""
        return level < -math.inf

    def on_probe(self, seen: Seen) -> Action:
        level = self.levels(seen.probes)[-1]
        if (seen.last.closed or not self.answers) and self.enough(level):
            return STOP
        return GIVE_UP if self.hopeless(level, seen.at) else GO_ON


def agreements(probes: Sequence[Probe], counts: Sequence[bool] = ()) -> list[float]:
    """How many probes in a row, up to each, gave the same whole answer. One that does not count breaks the row."""
    lengths: list[float] = []
    for number, probe in enumerate(probes):
        if not probe.valid or (counts and not counts[number]):
            lengths.append(0)
        elif number and lengths[-1] and same_answer(probes[number - 1].answer, probe.answer):
            lengths.append(lengths[-1] + 1)
        else:
            lengths.append(1)
    return lengths


def exponential(values: Sequence[float], weight: float) -> list[float]:
    """The exponential mean after each value, which has this weight; it begins at the first."""
    means: list[float] = []
    for value in values:
        means.append(weight * value + (1 - weight) * means[-1] if means else value)
    return means


Levelled = LevelRule  # its former name, for rules written against it
