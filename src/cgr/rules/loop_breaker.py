from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from cgr.records import StopCause
from cgr.rules.actions import GIVE_UP, GO_ON, STOP, Action
from cgr.rules.base import Seen, rule
from cgr.rules.cgr import Cgr
from cgr.rules.limits import COUNT, Limits, parameter


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
    give_up_text: ClassVar[str] = "the thinking repeated itself"
    needs: ClassVar[frozenset[str]] = frozenset({"logprobs", "token_ids"})

    @property
    def sure_at(self) -> float | None:
        """Any answer may become the last one, unless the rule then gives up."""
        return self.threshold if self.then == "give-up" else None

    def why(self, cause: StopCause, certainty: float = 0.0) -> str:
        return super().why("gave_up" if cause == "certainty" and certainty < self.threshold else cause, certainty)

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
