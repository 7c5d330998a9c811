"""What a rule may do: at one point of one trace, and on all traces of a recording at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

WAIT = "\nWait"


@dataclass(frozen=True, slots=True)
class GoOn:
    """Continue thinking. At the end of thinking: let it end."""


@dataclass(frozen=True, slots=True)
class Stop:
    """Stop thinking. The last probe's answer is the answer; if probes hold no answer, the model is asked for one."""


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Stop thinking, without an answer."""


@dataclass(frozen=True, slots=True)
class KeepThinking:
    """Do not let thinking end: write `text` in place of the end tag."""

    text: str = WAIT


Action = GoOn | Stop | GiveUp | KeepThinking
GO_ON, STOP, GIVE_UP = GoOn(), Stop(), GiveUp()


@dataclass(frozen=True, slots=True, eq=False)
class ArrayDecisions:
    """What a rule decides on all traces of a run, as arrays.

    Flags of shape (traces, probes): `made`, the probes that the rule makes; `stops` and `gives_up`, the probes after which
    it stops or gives up. `interval`: the rule probes at every multiple of it; None: wherever there is a probe.
    `whole`: the probes whose whole answer is needed, because the rule may stop there although it is not certain.
    `given_up_at`: for each trace, where a rule without probes gives up; -1: nowhere. `missing_at`: for each trace, the
    position of a probe that the rule would make next and that was not recorded; -1: none.
    """

    made: Any = None
    stops: Any = None
    gives_up: Any = None
    interval: int | None = None
    whole: Any = None
    given_up_at: Any = None
    missing_at: Any = None
