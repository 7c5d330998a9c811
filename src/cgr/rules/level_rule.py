"""Rules that compare one number with a threshold.

`levels` gives one number for each probe, `enough` says whether a number stops the thinking. The loop looks at the newest
one. The lab computes all numbers of all traces once, and compares them with every threshold (`decide_all`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from cgr.records import Probe
from cgr.rules.actions import GIVE_UP, GO_ON, STOP, Action, ArrayDecisions
from cgr.rules.base import Rule, Seen, next_multiple
from cgr.rules.same_answer import same_answer


@dataclass(frozen=True, kw_only=True)
class LevelRule(Rule):
    """Stop at the first probe whose level is enough and whose answer closed; give up at the first that is hopeless.

    By default the level is the certainty, and it is enough from the main parameter on. `levels` must not depend on the main
    parameter, and the n-th level must depend on the first n probes only. `enough` and `hopeless` are given numbers or
    arrays. `spacing` names the parameter that says how many tokens the probes are apart.
    """

    spacing: ClassVar[str] = "interval"
    any_position: ClassVar[bool] = True

    @property
    def most_probes(self) -> int | None:
        """How many probes are made at most; None: no limit."""
        return None

    def levels(self, probes: Sequence[Probe]) -> list[float]:
        """The level after each of these probes."""
        return [probe.certainty for probe in probes]

    def enough(self, level: Any) -> Any:
        """Whether this level stops the thinking."""
        if self.main is None:
            raise NotImplementedError(f"{type(self).__name__} must say which level is enough")
        return level >= getattr(self, self.main)

    def hopeless(self, level: Any, at: Any) -> Any:
        """Whether to give up at this level after `at` thinking tokens."""
        return level < -math.inf

    @property
    def sure_at(self) -> float | None:
        """The main parameter, if the rule compares nothing but the certainty with it."""
        cls = type(self)
        plain = cls.levels is LevelRule.levels and cls.enough is LevelRule.enough and cls.hopeless is LevelRule.hopeless
        return getattr(self, self.main) if plain and self.main is not None else None

    def next_probe(self, seen: Seen) -> int | None:
        if self.most_probes is not None and len(seen.probes) >= self.most_probes:
            return None
        if self.place is not None:
            return seen.at + 1
        interval: int | None = getattr(self, self.spacing, None)
        return None if interval is None else next_multiple(seen.at, interval)

    def on_probe(self, seen: Seen) -> Action:
        level = self.levels(seen.probes)[-1]
        if (seen.last.closed or not self.answers) and self.enough(level):
            return STOP
        return GIVE_UP if self.hopeless(level, seen.at) else GO_ON

    def made(self, recorded: Any) -> tuple[Any, int | None]:
        """The probes that the rule makes if nothing stops the thinking, as flags, and the distance between them."""
        interval = None if self.place is not None or recorded.irregular else getattr(self, self.spacing)
        made = recorded.present if interval is None else recorded.present & (recorded.at % interval == 0)
        if self.most_probes is not None:
            made = made & (made.cumsum(axis=1) <= self.most_probes)
        return made, interval

    def decide_all(self, recorded: Any) -> ArrayDecisions:
        self.check()
        made, interval = self.made(recorded)
        plain = type(self).levels is LevelRule.levels
        level = recorded.certainty(self) if plain else recorded.levels(self, made)
        closed = recorded.closed if self.answers else made
        return ArrayDecisions(made, made & closed & self.enough(level), made & self.hopeless(level, recorded.at), interval)

    def without_main(self) -> Self:
        """This rule with its main parameter at the default. Rules that are equal then have the same levels."""
        return self if self.main is None else replace(self, **{self.main: self.parameters()[self.main]})


def is_dry(probe: Probe, floor: float) -> bool:
    """Whether the probe has no answer of at least this certainty. Rules that use nothing else about a dry probe decide the
    same if its decoding stopped early at the floor."""
    return not probe.closed or probe.certainty < floor


def exponential_means(values: Sequence[float], weight: float) -> list[float]:
    """The exponential mean after each value. A new value has this weight; the first mean is the first value."""
    means: list[float] = []
    for value in values:
        means.append(weight * value + (1 - weight) * means[-1] if means else value)
    return means


def agreements(probes: Sequence[Probe], counts: Sequence[bool] = ()) -> list[float]:
    """After each probe: how many in a row gave the same valid answer. `counts`: False where a probe does not count."""
    lengths: list[float] = []
    for number, probe in enumerate(probes):
        if not probe.valid or (counts and not counts[number]):
            lengths.append(0)
        elif number and lengths[-1] and same_answer(probes[number - 1].answer, probe.answer):
            lengths.append(lengths[-1] + 1)
        else:
            lengths.append(1)
    return lengths


Levelled = LevelRule  # the former name, for rules written against it
