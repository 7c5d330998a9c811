"""The rules of the paper: Nogueira, Sun, Silva, Zumot: Certainty-Guided Reasoning in Large Language Models."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from cgr.rules.actions import GO_ON, STOP, Action, KeepThinking
from cgr.rules.base import CERTAINTY, COUNT, INTERVAL, THRESHOLD, Limits, Rule, Seen, parameter, rule
from cgr.rules.level_rule import LevelRule

FORCINGS = Limits(options=("replace", "ban"))


@rule("fixed-budget")
@dataclass(frozen=True, kw_only=True)
class FixedBudget(Rule):
    """Think until the model ends its thinking or the budget is spent, then answer.

    The paper's baseline (section 4.3).
    """

    sweeps_budget: ClassVar[bool] = True


@rule("no-thinking")
@dataclass(frozen=True, kw_only=True)
class NoThinking(Rule):
    """Close the thinking before it starts and answer at once: the lower bound for all rules."""

    thinks: ClassVar[bool] = False


@rule("cgr")
@dataclass(frozen=True, kw_only=True)
class Cgr(LevelRule):
    """Probe every `interval` tokens and stop when the certainty of a closed answer reaches the threshold.

    The paper's Algorithm 1.
    """

    threshold: float = parameter(THRESHOLD, CERTAINTY)
    interval: int = parameter(INTERVAL, COUNT)
    needs: ClassVar[frozenset[str]] = frozenset({"logprobs"})
    main: ClassVar[str | None] = "threshold"
    grid: ClassVar[tuple[float, ...]] = (0.5, 0.7, 0.8, 0.9, 0.95, 0.96, 0.97, 0.98, 0.99, 0.995, 0.999)


@rule("budget-forcing")
@dataclass(frozen=True, kw_only=True)
class BudgetForcing(Rule):
    """Never let thinking end before the budget: write "Wait" where the model would stop.

    Muennighoff et al.: s1, simple test-time scaling (the paper's Algorithm 2). `at_most` limits how often, as s1 does; by
    default there is no limit, as in the paper. `forcing="ban"` forbids the end tag instead, as a logits processor does.
    """

    at_most: int | None = None
    forcing: Literal["replace", "ban"] = parameter("replace", FORCINGS)
    forces: ClassVar[bool] = True

    @property
    def bans_end(self) -> bool:
        return self.forcing == "ban"

    def on_end(self, seen: Seen) -> Action:
        return KeepThinking() if self.at_most is None or seen.forced < self.at_most else GO_ON


@rule("cgr-forced")
@dataclass(frozen=True, kw_only=True)
class CgrForced(Cgr):
    """As cgr, but thinking may not end until a probe is certain or the budget is spent.

    The paper's Algorithm 3: at the end tag a probe is made. If it is certain, thinking stops; else "Wait" replaces the tag.
    """

    forcing: Literal["replace", "ban"] = parameter("replace", FORCINGS)
    forces: ClassVar[bool] = True
    probes_at_end: ClassVar[bool] = True

    @property
    def bans_end(self) -> bool:
        return self.forcing == "ban"

    def on_end(self, seen: Seen) -> Action:
        return STOP if self.on_probe(seen) == STOP else KeepThinking()
