from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from cgr.errors import UnknownName
from cgr.rules.base import STOP, Action, Forcing, KeepThinking, Seen, rule
from cgr.rules.budget_forcing import FORCINGS
from cgr.rules.cgr import Cgr


@rule("cgr-forced")
@dataclass(frozen=True, kw_only=True)
class CgrForced(Cgr):
    """As cgr, and the thinking may not end either until the model is sure or the budget is spent.

    The paper's Algorithm 3: at the end tag a probe is made; sure, it stops; unsure, "Wait" takes the tag's place.
    """

    forcing: Forcing = "replace"
    probes_at_end: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.forcing not in FORCINGS:
            raise UnknownName.among("way of forcing", self.forcing, FORCINGS)

    @property
    def bans_end(self) -> bool:
        return self.forcing == "ban"

    def on_end(self, seen: Seen) -> Action:
        return STOP if self.on_probe(seen) == STOP else KeepThinking()
