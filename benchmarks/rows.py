"""What a benchmark found: rows of a number, what it should hold, and whether it does; as JSON and as a table."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from cgr.doctor import machine

Sense = Literal["at most", "at least"]


@dataclass(frozen=True, slots=True)
class Row:
    """One number. `hold` None: it is shown, and nothing is asked of it."""

    what: str
    engine: str
    value: float
    unit: str = "times"
    sense: Sense = "at most"
    hold: float | None = None
    detail: dict[str, Any] = field(default_factory=dict)

    @property
    def held(self) -> bool | None:
        if self.hold is None:
            return None
        return self.value <= self.hold if self.sense == "at most" else self.value >= self.hold


@dataclass(slots=True)
class Results:
    """All rows of one run, and the curves that are drawn of it."""

    quick: bool
    rows: list[Row] = field(default_factory=list)
    curves: dict[str, list[dict[str, float]]] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        return {
            "when": datetime.now(UTC).isoformat(timespec="seconds"),
            "quick": self.quick,
            "machine": machine.look().to_dict(),
            "rows": [asdict(row) | {"held": row.held} for row in self.rows],
            "curves": self.curves,
            "left_out": ["a stream through `cgr serve`: there is no server in this version"],
        }

    def write(self, folder: Path) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / ("quick.json" if self.quick else "bench.json")
        path.write_text(json.dumps(self.to_dict(), indent=1) + "\n", encoding="utf-8")
        (folder / path.with_suffix(".md").name).write_text(self.table(), encoding="utf-8")
        return path

    def table(self) -> str:
        found = machine.look()
        packages = ", ".join(f"{name} {version}" for name, version in found.packages)
        head = f"{found.processor}, {found.cores} cores; Python {found.python}, cgr {found.cgr}, {packages}"
        lines = [head, "", "| what | engine | measured | hold | |", "|---|---|---|---|---|"]
        return "\n".join([*lines, *map(line, self.rows)]) + "\n"


def line(row: Row) -> str:
    hold = "" if row.hold is None else f"{row.sense} {row.hold:g}"
    verdict = {None: "", True: "held", False: "NOT HELD"}[row.held]
    return f"| {row.what} | {row.engine} | {row.value:.3g} {row.unit} | {hold} | {verdict} |"
