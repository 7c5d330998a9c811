"""The records of ablations.json, what an ablation is, and how its numbers are written in tables and sentences."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from cgr.lab.ablate.inputs import AblationInputs
from cgr.lab.output import Cell, Head, Table, signed
from cgr.lab.score.paired import Score
from cgr.lab.store.recorded import RunInfo
from cgr.lab.types import Interval
from cgr.records import Record

SCHEMA = 1
SCORE_HEADS = (
    Head("accuracy", "Accuracy", ".1f", 100, "%"),
    Head("diff_points", "Diff. (points)", "+.2f"),
    Head("ci95_diff_points", "95% interval", "+.2f"),
    Head("gross_share", "Saved", ".1f", 100, "%"),
    Head("ci95_gross_share", "95% interval", ".1f", 100),
    Head("net_share", "Net", ".1f", 100, "%"),
    Head("ci95_net_share", "95% interval", ".1f", 100),
    Head("probe_tokens", "Probe tokens", ".1f"),
)


@dataclass(frozen=True, slots=True)
class AblationResult:
    """The result of one ablation: a conclusion in words, its rows, and a table and a figure of them."""

    conclusion: str
    rows: tuple[Record, ...]
    table: Table
    draw: Callable[[], Any]
    caption: str
    notes: tuple[str, ...] = ()


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
class NamedResult:
    """An ablation that was carried out."""

    name: str
    title: str
    ablated: AblationResult

    def to_dict(self) -> dict[str, Any]:
        """Its entry in ablations.json."""
        result = self.ablated
        text = {"conclusion": result.conclusion, "notes": list(result.notes)}
        return {"name": self.name, "title": self.title, **text, "rows": [row.to_dict() for row in result.rows]}


@dataclass(frozen=True, slots=True)
class Ablations:
    """All ablations of a run."""

    run: RunInfo
    threshold: float
    questions: int
    seeds: int
    made: tuple[NamedResult, ...]
    missing: tuple[MissingAblation, ...]

    def to_dict(self) -> dict[str, Any]:
        """The content of ablations.json."""
        return {
            "schema": SCHEMA,
            "run": self.run.to_dict(),
            "threshold": self.threshold,
            "questions": self.questions,
            "seeds": self.seeds,
            "ablations": [one.to_dict() for one in self.made],
            "missing": [one.to_dict() for one in self.missing],
        }


def score_cells(score: Score) -> tuple[Cell, ...]:
    """A score as cells under `SCORE_HEADS`."""
    return tuple(getattr(score, head.name) for head in SCORE_HEADS)


def percent(share: float, interval: Interval | None = None) -> str:
    """A share as `12.3%`, followed by its interval if given: `12.3% [10.1, 14.5]`."""
    return _with_interval("%", [f"{100 * value:.1f}" for value in (share, *(interval or ()))])


def points(difference: float, interval: Interval) -> str:
    """A difference in accuracy and its interval, as `+1.2 points [−0.4, +2.8]`."""
    return _with_interval(" points", [f"{value:+.1f}" for value in (difference, *interval)])


def _with_interval(unit: str, numbers: list[str]) -> str:
    first, *ends = map(signed, numbers)
    return f"{first}{unit} [{', '.join(ends)}]" if ends else f"{first}{unit}"
