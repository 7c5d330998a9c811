from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from cgr.rules.actions import STOP, Action
from cgr.rules.base import Seen, rule
from cgr.rules.cgr import Cgr
from cgr.rules.forced_thinking import ForcedThinking


@rule("cgr-forced")
@dataclass(frozen=True, kw_only=True)
class CgrForced(ForcedThinking, Cgr):
    """As cgr, but thinking may not end until a probe is certain or the budget is spent.

    Algorithm 3 of the paper of `cgr`: at the end tag a probe is made. If it is certain, thinking stops; else "Wait"
    (`text`) replaces the tag. `at_most` limits how often; by default there is no limit, as in the paper.
    """

    probes_at_end: ClassVar[bool] = True

    def on_end(self, seen: Seen) -> Action:
        return STOP if self.on_probe(seen) == STOP else self.force(seen)
