"""The nouns of the ablation of forcing."""

from __future__ import annotations

from dataclasses import dataclass

from cgr.lab.score.measures import Score
from cgr.lab.types import Interval
from cgr.records import Record


@dataclass(frozen=True, slots=True)
class Drift(Record):
    """Shares of traces whose answer was right at the natural end and is wrong now, and the other way round."""

    lost: float
    gained: float
    ci95_lost: Interval
    ci95_gained: Interval


@dataclass(frozen=True, slots=True)
class Step(Record):
    """Probes made so many tokens after the natural end (at most an interval less): how sure, how often right."""

    after: int
    count: int
    certainty: float
    accuracy: float


@dataclass(frozen=True, slots=True)
class ForcedRow(Record):
    """One way to end. `run` is empty for the natural run, which drift is told from."""

    way: str
    run: str
    score: Score
    drift: Drift | None = None
    steps: tuple[Step, ...] = ()
