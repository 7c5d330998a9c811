"""The nouns of ablations.json, and what an ablation is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from cgr.lab.ablate.inputs import AblationInputs
from cgr.lab.output.table import MINUS, Table
from cgr.lab.store.recorded import RunInfo
from cgr.lab.types import Interval
from cgr.records import Record

SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Ablated:
    """One ablation: a sentence that its numbers support, the numbers, a table and a figure of them."""

    conclusion: str
    rows: tuple[Record, ...]
    table: Table
    draw: Callable[[], Any]
    caption: str
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Ablation:
    """A question that can be put to a run. `run` raises `NotRecorded` where it cannot, with the command that would help."""

    name: str
    title: str
    run: Callable[[AblationInputs], Ablated]


@dataclass(frozen=True, slots=True)
class Missing(Record):
    """An ablation that these recordings cannot give: why, and what records what it needs."""

    name: str
    title: str
    why: str
    command: str


@dataclass(frozen=True, slots=True)
class Made:
    """An ablation that was carried out, by name."""

    name: str
    title: str
    ablated: Ablated

    def to_dict(self) -> dict[str, Any]:
        one = self.ablated
        rows = [row.to_dict() for row in one.rows]
        said = {"conclusion": one.conclusion, "notes": list(one.notes)}
        return {"name": self.name, "title": self.title, **said, "rows": rows}


@dataclass(frozen=True, slots=True)
class Ablations:
    """All of a run."""

    run: RunInfo
    threshold: float
    questions: int
    seeds: int
    made: tuple[Made, ...]
    missing: tuple[Missing, ...]

    def to_dict(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "run": self.run.to_dict(),
            "threshold": self.threshold,
            "questions": self.questions,
            "seeds": self.seeds,
            "ablations": [one.to_dict() for one in self.made],
            "missing": [one.to_dict() for one in self.missing],
        }


def percent(value: float) -> str:
    return f"{100 * value:.1f}%".replace("-", MINUS)


def percents(interval: Interval) -> str:
    return f"[{', '.join(f'{100 * end:.1f}' for end in interval)}]".replace("-", MINUS)


def points(value: float) -> str:
    """A difference in accuracy, with its sign; none where it is nothing."""
    return f"{_signed(value)} points"


def span(interval: Interval) -> str:
    return f"[{', '.join(map(_signed, interval))}]"


def _signed(value: float) -> str:
    written = f"{value:+.1f}"
    return "0.0" if written in ("+0.0", "-0.0") else written.replace("-", MINUS)


def listed(items: Sequence[str]) -> str:
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"
