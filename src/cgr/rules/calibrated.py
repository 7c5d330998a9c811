from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from cgr.errors import UsageError
from cgr.rules.adaptive import check_rare
from cgr.rules.base import (
    GIVE_UP,
    GO_ON,
    INTERVAL,
    STOP,
    Action,
    Rule,
    Seen,
    check_at_least_one,
    check_threshold,
    rule,
)
from cgr.rules.history import History, history

STEPS = 32  # a budget's worth of probes in the paper: what "for long" is counted in
SUREST = 1 - 1e-4  # beyond this, certainties tell nothing apart
AS_CERTAINTY = (0.0, 1.0, 0.0, 0.0, 0.0)
A_TENTH = (0.1, 0.0, 0.0, 0.0, 0.0)


@rule("calibrated")
@dataclass(frozen=True, kw_only=True)
class Calibrated(Rule):
    """Stop when what thinking on may still win is not worth its tokens; `cgr fit` learns both from other questions.

    A probe closed at `floor` certainty or more is an answer. The chance that stopping there loses nothing is a logistic
    function (`answered`) of the certainty, for how long the answer has held, the position and how often it changed; the
    share of the budget that stopping would save is a linear function (`left`) of the same. Below `hope` there is no answer;
    the chance that none will come rises in steps (`hopeless`) with how long that has been so, and the rest of the budget
    would be saved. It stops when the risk, 1 less the chance, is at most `price` times the saving: with the answer, or by
    giving up. While the chance is below `near`, one interval in `rare` is probed. `span` is the budget that all shares are
    of; 0 is the budget at hand. Unfitted, the chance is the certainty, the saving a tenth, and nothing is given up.
    """

    price: float = 0.1
    interval: int = INTERVAL
    rare: int = 3
    near: float = 0.8
    floor: float = 0.5
    hope: float = 0.15
    span: int = 0
    answered: tuple[float, ...] = AS_CERTAINTY
    left: tuple[float, ...] = A_TENTH
    hopeless: tuple[tuple[float, float], ...] = ()
    needs: ClassVar[frozenset[str]] = frozenset({"logprobs"})
    main: ClassVar[str | None] = "price"
    grid: ClassVar[tuple[float, ...]] = (0.4, 0.3, 0.25, 0.2, 0.15, 0.125, 0.1, 0.085, 0.07, 0.06, 0.05, 0.035, 0.02, 0.01)

    def __post_init__(self) -> None:
        for value in (self.near, self.floor, self.hope):
            check_threshold(value)
        check_at_least_one("interval", self.interval)
        check_rare(self.rare)
        if not self.price >= 0 or self.span < 0 or self.hope > self.floor:
            raise UsageError("A price or span below 0, or hope above the floor, makes no sense.", "Fit it: `cgr fit`.")
        object.__setattr__(self, "answered", _weights("answered", self.answered))
        object.__setattr__(self, "left", _weights("left", self.left))
        object.__setattr__(self, "hopeless", tuple((float(share), float(chance)) for share, chance in self.hopeless))

    @property
    def sure_at(self) -> float | None:
        return self.hope

    def within(self, budget: int) -> Self:
        return self if self.span else replace(self, span=budget)

    def next_probe(self, seen: Seen) -> int | None:
        steps = self.rare if self.rare > 1 and (not seen.probes or self.weigh(seen)[0] < self.near) else 1
        return (seen.at // self.interval + steps) * self.interval

    def on_probe(self, seen: Seen) -> Action:
        chance, saving = self.weigh(seen)
        if not chance or 1 - chance > self.price * saving:
            return GO_ON
        return GIVE_UP if seen.last.certainty < self.floor or not seen.last.closed else STOP

    def weigh(self, seen: Seen) -> tuple[float, float]:
        """The chance that stopping at the last probe loses nothing, and the share of the budget that it would save."""
        past, at, span = history(seen.probes, self.floor, self.hope), seen.last.at, self.span or STEPS * INTERVAL
        rest = max(1 - at / span, 0.0)
        if not past.strength:
            return max((chance for share, chance in self.hopeless if past.dry >= share * span > 0), default=0.0), rest
        values = features(past, at, span)
        return _logistic(_sum(self.answered, values)), min(max(_sum(self.left, values), 0.0), rest)


def features(past: History, at: int, span: int) -> tuple[float, ...]:
    """A constant; certainty; for how long the answer has held; the position; how often the answer changed."""
    strength = min(past.strength, SUREST)
    certainty = math.log(strength / (1 - strength))
    return 1.0, certainty, math.log1p(STEPS * past.held / span), math.log(at / span), math.log1p(past.changes)


def _sum(weights: Sequence[float], values: Sequence[float]) -> float:
    return math.fsum(weight * value for weight, value in zip(weights, values, strict=True))


def _logistic(value: float) -> float:
    return 1 / (1 + math.exp(-max(-700.0, min(value, 700.0))))


def _weights(name: str, given: Sequence[Any]) -> tuple[float, ...]:
    """As a tuple, whatever a file gave."""
    if len(given) != len(AS_CERTAINTY):
        raise UsageError(f"{name!r} takes {len(AS_CERTAINTY)} weights, not {len(given)}.", "Learn them with `cgr fit`.")
    return tuple(map(float, given))
