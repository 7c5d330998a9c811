from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from cgr.errors import UnknownName, UsageError
from cgr.rules.base import GIVE_UP, GO_ON, STOP, Action, Seen, check_at_least_one, rule
from cgr.rules.cgr import Cgr

THEN = ("stop", "give-up")


@rule("loop-breaker")
@dataclass(frozen=True, kw_only=True)
class LoopBreaker(Cgr):
    """As cgr, and stop where the thinking goes round in circles.

    A loop is there when the thinking ends in the same tokens, at most `longest` of them, `times` times in a row, and that
    for at least `least` tokens. Probes look for one; then the last answer is the answer, or, with `then="give-up"` or
    where it did not close, there is none.
    """

    times: int = 3
    least: int = 64
    longest: int = 512
    then: Literal["stop", "give-up"] = "stop"
    needs: ClassVar[frozenset[str]] = frozenset({"logprobs", "token_ids"})

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.times < 2:
            raise UsageError(f"What comes {self.times} times is no loop.", "Set times to 2 or more.")
        check_at_least_one("least length of a loop", self.least)
        check_at_least_one("longest turn of a loop", self.longest)
        if self.then not in THEN:
            raise UnknownName.among("end of a loop", self.then, THEN)

    @property
    def sure_at(self) -> float | None:
        """Any answer may be the last one, unless it is given up."""
        return self.threshold if self.then == "give-up" else None

    def on_probe(self, seen: Seen) -> Action:
        action = super().on_probe(seen)
        if action != GO_ON or not loops(seen.ids, self.times, self.least, self.longest):
            return action
        return STOP if self.then == "stop" and seen.last.closed else GIVE_UP


def loops(ids: Sequence[int], times: int, least: int, longest: int) -> bool:
    """Whether these end in the same few, so many times in a row."""
    return any(_turns(ids, period, times, least) for period in range(1, longest + 1))


def _turns(ids: Sequence[int], period: int, times: int, least: int) -> bool:
    repeated = max(period * (times - 1), least - period)
    if repeated + period > len(ids) or ids[-1] != ids[-1 - period]:
        return False
    return ids[-repeated:] == ids[-repeated - period : -period]
