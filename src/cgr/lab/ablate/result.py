"""The records of ablations.json, what an ablation is, and how its numbers are written in tables and sentences."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from cgr.lab.ablate.inputs import AblationInputs
from cgr.lab.output import PERCENT, Head, Table, with_interval
from cgr.lab.store.recorded import RunInfo
from cgr.lab.types import Interval
from cgr.records import Record

SCHEMA = 1
SCORE_HEADS = (
    Head("accuracy", "Accuracy", ".1f", 100, "%"),
    *with_interval("diff_points", "Diff. (points)", "+.2f"),
    *with_interval("gross_share", "Saved", ".1f", 100, "%"),
    *with_interval("net_share", "Net", ".1f", 100, "%"),
    Head("probe_tokens", "Probe tokens", ".1f"),
)
POINTS = Head("points", "", "+.1f", 1, " points")


@dataclass(frozen=True, slots=True)
class AblationResult:
    """The result of one ablation: a conclusion in words, its rows, and a table and a figure of them."""

    conclusion: str
    rows: tuple[Record, ...]
    table: Table
    draw: Callable[[], Any]
    caption: str
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """What ablations.json says about it."""
        rows = [row.to_dict() for row in self.rows]
        return {"conclusion": self.conclusion, "notes": list(self.notes), "rows": rows}


@dataclass(frozen=True, slots=True)
class Ablation:
    """One ablation. `run` raises `NotRecorded`, with the command that helps, where the recordings do not allow it."""

    name: str
    title: str
    run: Callable[[AblationInputs], AblationResult]


@dataclass(frozen=True, slots=True)
class MissingAblation(Record):
    """An ablation that the recordings do not allow: why, and the command that records what it needs."""

    name: str
    title: str
    why: str
    command: str


@dataclass(frozen=True, slots=True)
class Ablations:
    """All ablations of a run: the results of those that its recordings allow, and the others."""

    run: RunInfo
    threshold: float
    questions: int
    seeds: int
    made: tuple[tuple[Ablation, AblationResult], ...]
    missing: tuple[MissingAblation, ...]

    def to_dict(self) -> dict[str, Any]:
        """The content of ablations.json."""
        return {
            "schema": SCHEMA,
            "run": self.run.to_dict(),
            "threshold": self.threshold,
            "questions": self.questions,
            "seeds": self.seeds,
            "ablations": [{"name": one.name, "title": one.title, **made.to_dict()} for one, made in self.made],
            "missing": [one.to_dict() for one in self.missing],
        }


def percent(share: float, interval: Interval | None = None) -> str:
    """A share as `12.3%`, followed by its interval if given: `12.3% [10.1, 14.5]`."""
    return f"{PERCENT.text(share)} {PERCENT.text(interval)}" if interval else PERCENT.text(share)


def points(difference: float, interval: Interval) -> str:
    """A difference in accuracy and its interval, as `+1.2 points [−0.4, +2.8]`."""
    return f"{POINTS.text(difference)} {POINTS.text(interval)}"
