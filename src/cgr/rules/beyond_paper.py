"""Rules beyond the paper that change one thing about `cgr`. `calibrated`, which is learned, has its own module."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import ClassVar, Literal, Self

from cgr.records import Probe
from cgr.rules.actions import GIVE_UP, GO_ON, STOP, Action
from cgr.rules.base import CERTAINTY, COUNT, SHARE, Limits, Seen, parameter, rule
from cgr.rules.level_rule import is_dry
from cgr.rules.paper import Cgr
from cgr.rules.same_answer import same_answer

FLOORS = (0.2, 0.3, 0.4, 0.5, 0.7)
PATIENCES = (0.125, 0.2, 0.25, 0.3, 0.4, 0.5, 0.65, 0.8, 1)  # as shares of a budget's probes


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
    def sure_at(self) -> float:
        """Below both `near` and the threshold, how low the certainty is does not matter."""
        return min(self.near, self.threshold)

    def next_probe(self, seen: Seen) -> int | None:
        low = not seen.probes or is_dry(seen.last, self.sure_at)
        wanted = seen.at // self.interval + (self.rare if low else 1)
        affordable = math.ceil((len(seen.probes) + 1) * self.cost / self.cap / self.interval - 1e-9)
        return max(wanted, affordable) * self.interval


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

    def on_probe(self, seen: Seen) -> Action:
        last = seen.probes[-self.agree :]
        sure = len(last) == self.agree and not any(is_dry(probe, self.threshold) for probe in last)
        alike = all(same_answer(last[0].answer, probe.answer) for probe in last)
        falls = self.rising and any(later.certainty < earlier.certainty for earlier, later in pairwise(last))
        return STOP if sure and alike and not falls else GO_ON


@rule("smoothed")
@dataclass(frozen=True, kw_only=True)
class Smoothed(Cgr):
    """As cgr, with an exponential mean of the certainty of one answer, so that one lucky probe does not stop.

    The mean starts at `floor` and moves by the share `weight` towards each new certainty. It starts again when the answer
    changes, and after a probe that did not close or is less certain than `floor`. The rule stops at the threshold.
    """

    threshold: float = parameter(0.95, CERTAINTY)
    weight: float = parameter(0.8, SHARE)
    floor: float = parameter(0.5, CERTAINTY)

    @property
    def sure_at(self) -> float | None:
        return self.floor

    def on_probe(self, seen: Seen) -> Action:
        dry = is_dry(seen.last, self.floor)
        return STOP if not dry and self.mean(seen.probes) >= self.threshold else GO_ON

    def mean(self, probes: Sequence[Probe]) -> float:
        """The exponential mean after these probes."""
        mean, answer = self.floor, ""
        for probe in probes:
            if is_dry(probe, self.floor):
                mean, answer = self.floor, ""
                continue
            if not same_answer(answer, probe.answer):
                mean = self.floor
            mean, answer = mean + self.weight * (probe.certainty - mean), probe.answer
        return mean


@rule("give-up")
@dataclass(frozen=True, kw_only=True)
class GiveUpEarly(Cgr):
    """As cgr, and give up, without an answer, when certainty stays low.

    The rule gives up when `patience` probes in a row did not close or are less certain than `floor`. `cgr fit` chooses both
    for a penalty on wrong answers.
    """

    floor: float = parameter(0.3, CERTAINTY)
    patience: int = parameter(12, COUNT)

    @property
    def sure_at(self) -> float | None:
        """Below both the floor and the threshold, how low the certainty is does not matter."""
        return min(self.floor, self.threshold)

    def on_probe(self, seen: Seen) -> Action:
        action = super().on_probe(seen)
        last = seen.probes[-self.patience :]
        hopeless = len(last) == self.patience and all(is_dry(probe, self.floor) for probe in last)
        return GIVE_UP if hopeless and action != STOP else action

    def candidates(self, budget: int) -> Iterator[Self]:
        most = max(2, budget // self.interval)
        patiences = sorted({max(1, round(most * share)) for share in PATIENCES})
        return (replace(self, floor=floor, patience=patience) for floor in FLOORS for patience in patiences)


@rule("loop-breaker")
@dataclass(frozen=True, kw_only=True)
class LoopBreaker(Cgr):
    """As cgr, and stop when the thinking repeats itself.

    A loop: the thinking ends with the same tokens, at most `longest` of them, `times` times in a row, together at least
    `least` tokens. It is looked for at each probe. Then the last answer is the answer; with `then="give-up"`, or if it did
    not close, there is none.
    """

    times: int = parameter(3, Limits(2))
    least: int = parameter(64, COUNT)
    longest: int = parameter(512, COUNT)
    then: Literal["stop", "give-up"] = parameter("stop", Limits(options=("stop", "give-up")))
    needs: ClassVar[frozenset[str]] = frozenset({"logprobs", "token_ids"})

    @property
    def sure_at(self) -> float | None:
        """Any answer may become the last one, unless the rule then gives up."""
        return self.threshold if self.then == "give-up" else None

    def on_probe(self, seen: Seen) -> Action:
        action = super().on_probe(seen)
        if action != GO_ON or not loops(seen.ids, self.times, self.least, self.longest):
            return action
        return STOP if self.then == "stop" and seen.last.closed else GIVE_UP


def loops(ids: Sequence[int], times: int, least: int, longest: int) -> bool:
    """Whether these tokens end with a repetition of at most `longest` tokens, `times` times, `least` tokens together."""
    return any(_repeats(ids, period, times, least) for period in range(1, longest + 1))


def _repeats(ids: Sequence[int], period: int, times: int, least: int) -> bool:
    repeated = max(period * (times - 1), least - period)
    if repeated + period > len(ids) or ids[-1] != ids[-1 - period]:
        return False
    return ids[-repeated:] == ids[-repeated - period : -period]
