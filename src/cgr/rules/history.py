"""What the rule `calibrated` reads from the probes so far, and the steps that it learns from droughts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from cgr.errors import NotRecorded
from cgr.records import Probe
from cgr.rules.level_rule import is_dry
from cgr.rules.same_answer import same_answer
from cgr.rules.stated import Stated

STEPS = 32  # probes in the paper's budget: the unit of "how long the answer has held"
SUREST = 1 - 1e-4  # differences above this certainty mean nothing
LEAST_EXAMPLES = 20  # with fewer examples no weights are learned, and no step
LONG_AGO = 9.0  # in place of the logarithm of the distance, for an answer that does not stand in the thinking
HINT = "Fit the rule to runs without it, or add it: cgr probe RUN --stated."


@dataclass(frozen=True, slots=True)
class History:
    """The probes so far. `strength`: the certainty of the newest probe, 0 if it is dry. `held`: thinking tokens since the
    current answer was first given without interruption. `changes`: how often the answer changed. `dry`: thinking tokens
    since the last probe that was not low. `answer`: the newest one; `since`: where it was first given, None after a dry
    probe; `wet_at`: the last probe that was not low; `stated`: of the newest probe."""

    strength: float = 0.0
    held: int = 0
    changes: int = 0
    dry: int = 0
    answer: str | None = field(default=None, compare=False)
    since: int | None = field(default=None, compare=False)
    wet_at: int = field(default=0, compare=False)
    stated: Stated | None = field(default=None, compare=False)

    def after(self, probe: Probe, floor: float, low: float) -> History:
        """The history with one more probe. From `floor` on, a probe has an answer; below `low`, it is part of a drought."""
        wet_at = self.wet_at if is_dry(probe, low) else probe.at
        dry = probe.at - wet_at
        if is_dry(probe, floor):
            return History(0.0, 0, self.changes, dry, self.answer, None, wet_at)
        changed = self.answer is not None and not same_answer(self.answer, probe.answer)
        since = probe.at if self.since is None or changed else self.since
        held, changes = probe.at - since, self.changes + changed
        return History(probe.certainty, held, changes, dry, probe.answer, since, wet_at, probe.stated)


def histories(probes: Sequence[Probe], floor: float, low: float) -> list[History]:
    """The history after each of these probes."""
    return list(accumulate(probes, lambda past, probe: past.after(probe, floor, low), initial=History()))[1:]


def history(probes: Sequence[Probe], floor: float, low: float) -> History:
    """The history after all of these probes."""
    return histories(probes, floor, low)[-1] if probes else History()


def features(past: History, at: int, span: int, *, stated: bool = False) -> tuple[float, ...]:
    """A constant, the certainty (log odds), how long the answer has held, the position, how often the answer changed. With
    `stated` also whether the answer stands in the thinking, how often, and how long ago."""
    strength = min(past.strength, SUREST)
    certainty = math.log(strength / (1 - strength))
    found = (1.0, certainty, math.log1p(STEPS * past.held / span), math.log(at / span), math.log1p(past.changes))
    if not stated:
        return found
    if past.stated is None:
        raise NotRecorded(f"Where the answer of the probe at token {at} stands in the thinking was not recorded.", HINT)
    often, ago = past.stated
    return *found, float(often > 0), math.log1p(often), math.log1p(ago) if often else LONG_AGO


def hopeless_steps(droughts: Sequence[tuple[set[int], bool]], span: int, isotonic: Any) -> tuple[tuple[float, float], ...]:
    """Steps (length of a drought as a share of the budget, chance that the trace ends wrong).

    `droughts`: for each trace, how long its drought was at each of its probes, and whether it ends wrong. The chance at a
    length is the share of wrong traces among those that reached it, made monotonic by `isotonic`. Half a trace of either
    kind is added. A length that fewer than `LEAST_EXAMPLES` traces reached is no step: what it would say is chance.
    """
    longest = [(max(lengths, default=0), ends_wrong) for lengths, ends_wrong in droughts]
    lengths = sorted({length for found, _ in droughts for length in found if length})
    reached = [[wrong for most, wrong in longest if most >= length] for length in lengths]
    lengths = [length for length, wrong in zip(lengths, reached, strict=True) if len(wrong) >= LEAST_EXAMPLES]
    reached = reached[: len(lengths)]
    shares = [(sum(wrong) + 0.5) / (len(wrong) + 1) for wrong in reached]
    first: dict[float, float] = {}
    for length, chance in zip(lengths, isotonic(shares, [len(wrong) for wrong in reached]), strict=True):
        first.setdefault(round(chance, 9), length / span)
    return tuple((share, chance) for chance, share in first.items())
