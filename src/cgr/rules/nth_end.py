from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from cgr.rules.actions import STOP, Action
from cgr.rules.base import Seen, rule
from cgr.rules.forced_thinking import ForcedThinking
from cgr.rules.limits import COUNT, parameter


@rule("nth-end")
@dataclass(frozen=True, kw_only=True)
class NthEnd(ForcedThinking):
    """Stop where the model wants to end its thinking for the n-th time, at any certainty; force it to continue before that.

    The plain rival of `cgr-forced`: with `ends=1` nothing is forced, and with more the thinking is forced as often in every
    trace, as by `budget-forcing` with a limit. The answer is that of a probe at the end tag, so a forced run decides it.
    """

    ends: int = parameter(1, COUNT)
    probes_at_end: ClassVar[bool] = True
    stop_text: ClassVar[str] = "the model wanted to end its thinking (end number {ends})"
    example: ClassVar[str] = "--set ends=2"
    main: ClassVar[str | None] = "ends"
    grid: ClassVar[tuple[float, ...]] = (1, 2, 3, 4, 6, 8)

    def on_end(self, seen: Seen) -> Action:
        return STOP if seen.last.closed and seen.forced + 1 >= self.ends else self.force(seen)
