from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from cgr.probing import ProbeStyle
from cgr.records import Probe
from cgr.rules.base import rule
from cgr.rules.level_rule import LevelRule, agreements
from cgr.rules.limits import COUNT, parameter

DYNASOR_PREFIX = "... Oh, I suddenly got the answer to the whole problem, **Final Answer**\n\n\\[ \\boxed{"
HEDGES = re.compile(r"\b(?:wait|hold|but|okay|no|hmm)\b", re.IGNORECASE)


@rule("dynasor")
@dataclass(frozen=True, kw_only=True)
class Dynasor(LevelRule):
    """Probe every few tokens and stop when the last few answers are the same and none of them was hedged.

    Fu et al.: Efficiently Scaling LLM Reasoning with Certaindex (hao-ai-lab/Dynasor). An answer counts if it is not empty
    and the decoded text (up to 20 tokens, with what follows the answer) contains no hedge word: wait, hold, but, okay, no,
    hmm. `agree`: 8 is mild, 5 low, 3 mid, 2 high.
    """

    agree: int = parameter(3, COUNT)
    every: int = parameter(32, COUNT)
    tokens: int = parameter(20, COUNT, style="max_answer_tokens")
    prefix: str = parameter(DYNASOR_PREFIX, style="prefix")
    stop_text: ClassVar[str] = "{agree} probes in a row gave the same answer without hedging"
    main: ClassVar[str | None] = "agree"
    grid: ClassVar[tuple[float, ...]] = (2, 3, 5, 8)
    spacing: ClassVar[str] = "every"
    style: ClassVar[ProbeStyle] = ProbeStyle(close_think="never", reads="text")

    def levels(self, probes: Sequence[Probe]) -> list[float]:
        return agreements(probes, [HEDGES.search(probe.text) is None for probe in probes])
