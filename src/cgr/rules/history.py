"""Summary of a series of probes, for rules that use more than the newest one.

A probe is dry if its answer did not close or its certainty is below a floor. Nothing else about a dry probe is used. So a
probe whose decoding stopped early at the floor gives the same summary as a full one, and live and replay agree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from cgr.records import Probe
from cgr.rules.same_answer import same_answer


@dataclass(frozen=True, slots=True)
class History:
    """`strength`: the certainty of the newest probe, 0 if it is dry. `held`: thinking tokens since the current answer was
    first given without interruption. `changes`: how often the answer changed. `dry`: thinking tokens since the last probe
    with hope."""

    strength: float = 0.0
    held: int = 0
    changes: int = 0
    dry: int = 0


def is_dry(probe: Probe, floor: float) -> bool:
    """Whether the probe has no answer of at least this certainty."""
    return not probe.closed or probe.certainty < floor


@lru_cache(maxsize=4096)
def same(one: str, other: str) -> bool:
    """Whether two answers are the same; cached, since rules compare all probes again after each new one."""
    return one == other or same_answer(one, other)


def history(probes: Sequence[Probe], floor: float, hope: float) -> History:
    """The summary of these probes. From the certainty `floor` on, a probe has an answer; below `hope`, it has no hope."""
    held_since = last_hope = changes = 0
    answer: str | None = None
    interrupted, strength = True, 0.0
    for probe in probes:
        if not is_dry(probe, hope):
            last_hope = probe.at
        if is_dry(probe, floor):
            interrupted, strength = True, 0.0
            continue
        changed = answer is not None and not same(answer, probe.answer)
        if interrupted or changed:
            held_since = probe.at
        changes += changed
        answer, interrupted, strength = probe.answer, False, probe.certainty
    at = probes[-1].at if probes else 0
    return History(strength, 0 if interrupted else at - held_since, changes, at - last_hope)
