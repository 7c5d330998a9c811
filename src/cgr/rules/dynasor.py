from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from cgr.probing import Asks
from cgr.records import Probe
from cgr.rules.base import Seen, check_at_least_one, next_multiple, rule
from cgr.rules.level_rule import LevelRule, agreements

PREFIX = "... Oh, I suddenly got the answer to the whole problem, **Final Answer**\n\n\\[ \\boxed{"
HEDGES = re.compile(r"\b(?:wait|hold|but|okay|no|hmm)\b", re.IGNORECASE)


@rule("dynasor")
@dataclass(frozen=True, kw_only=True)
class Dynasor(LevelRule):
    """Ask every few tokens, and stop when the last few answers are the same and none of them was hedged.

    Fu et al.: Efficiently Scaling LLM Reasoning with Certaindex (hao-ai-lab/Dynasor). An answer counts if it is not empty
    and what the probe decoded (up to 20 tokens, whatever follows the answer included) holds no word of doubt: wait, hold,
    but, okay, no, hmm. How many must agree: 8 is mild, 5 low, 3 mid, 2 high.
    """

    agree: int = 3
    every: int = 32
    tokens: int = 20
    prefix: str = PREFIX
    main: ClassVar[str | None] = "agree"
    grid: ClassVar[tuple[float, ...]] = (2, 3, 5, 8)

    def __post_init__(self) -> None:
        check_at_least_one("distance between probes", self.every)

    @property
    def asks(self) -> Asks:
        return Asks(self.prefix, self.tokens, close_think="never", reads="text")

    def next_probe(self, seen: Seen) -> int | None:
        return next_multiple(seen.at, self.every)

    def levels(self, probes: Sequence[Probe]) -> list[float]:
        return agreements(probes, [HEDGES.search(probe.text) is None for probe in probes])

    def enough(self, level: Any) -> Any:
        return level >= self.agree
