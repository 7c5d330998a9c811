from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from cgr.rules.actions import STOP, Action, KeepThinking
from cgr.rules.base import Seen, rule
from cgr.rules.cgr import Cgr
from cgr.rules.limits import Limits, parameter

FORCINGS = Limits(options=("replace", "ban"))


@rule("cgr-forced")
@dataclass(frozen=True, kw_only=True)
class CgrForced(Cgr):
    """As cgr, but thinking may not end until a probe is certain or the budget is spent.

    Algorithm 3 of the paper of `cgr`: at the end tag a probe is made. If it is certain, thinking stops; else "Wait"
    replaces the tag.
    """

    forcing: Literal["replace", "ban"] = parameter("replace", FORCINGS)
    forces: ClassVar[bool] = True
    probes_at_end: ClassVar[bool] = True

    @property
    def bans_end(self) -> bool:
        return self.forcing == "ban"

    def on_end(self, seen: Seen) -> Action:
        return STOP if self.on_probe(seen) == STOP else KeepThinking()
