"""What a row of probes comes to, for rules that remember more than the last one.

A probe whose answer did not close, or whose certainty is below a floor, is dry: nothing else about it is looked at. So a
probe that was cut short at the floor tells a rule exactly as much as a whole one, and live and replay stay the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from cgr.records import Probe
from cgr.rules.same_answer import same_answer


@dataclass(frozen=True, slots=True)
class History:
    """`strength`: the last certainty, if it is an answer, else 0. `held`: thinking tokens since that answer was first
    given, without a break. `changes`: how often an answer gave way to another. `dry`: thinking tokens since there was last
    hope."""

    strength: float = 0.0
    held: int = 0
    changes: int = 0
    dry: int = 0


def is_dry(probe: Probe, floor: float) -> bool:
    return not probe.closed or probe.certainty < floor


@lru_cache(maxsize=4096)
def same(one: str, other: str) -> bool:
    """As mathematics, as far as that can be told; kept, since a row of probes is looked through after each of them."""
    return one == other or same_answer(one, other)


def history(probes: Sequence[Probe], floor: float, hope: float) -> History:
    """From `floor` on a probe is an answer; below `hope` there is none."""
    since = hoped = changes = 0
    answer: str | None = None
    broken, strength = True, 0.0
    for probe in probes:
        if not is_dry(probe, hope):
            hoped = probe.at
        if is_dry(probe, floor):
            broken, strength = True, 0.0
            continue
        changed = answer is not None and not same(answer, probe.answer)
        if broken or changed:
            since = probe.at
        changes += changed
        answer, broken, strength = probe.answer, False, probe.certainty
    at = probes[-1].at if probes else 0
    return History(strength, 0 if broken else at - since, changes, at - hoped)
