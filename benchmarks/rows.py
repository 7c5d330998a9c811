"""The results of the benchmarks: rows with a value, its limit, and whether it meets the limit; as JSON and as a table."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from cgr.doctor.description import describe_machine

Sense = Literal["at most", "at least"]


@dataclass(frozen=True, slots=True)
class Row:
    """One value. `hold` is its limit (None: no limit) and `sense` the direction of the limit. `part`: the measurement that
    it belongs to."""

    what: str
    engine: str
    value: float
    unit: str = "times"
    sense: Sense = "at most"
    hold: float | None = None
    detail: dict[str, Any] = field(default_factory=dict)
    part: str = ""

    @property
    def held(self) -> bool | None:
        """Whether the value meets its limit; None without a limit."""
        if self.hold is None:
            return None
        return self.value <= self.hold if self.sense == "at most" else self.value >= self.hold


@dataclass(frozen=True, slots=True)
class Part:
    """When a part was measured, and the packages that were installed then, with their versions."""

    measured: str
    packages: tuple[tuple[str, str], ...]

    @classmethod
    def now(cls) -> Part:
        """A part that is measured at this moment."""
        return cls(datetime.now(UTC).isoformat(timespec="seconds"), describe_machine().packages)

    @classmethod
    def read(cls, found: dict[str, Any]) -> Part:
        """From JSON."""
        return cls(found["measured"], tuple((name, version) for name, version in found["packages"]))


def _hardware(machine: dict[str, Any]) -> tuple[Any, ...]:
    return machine.get("system"), machine.get("processor"), machine.get("cores")


@dataclass(slots=True)
class Results:
    """All rows of one run, and the curves for the figure."""

    quick: bool
    rows: list[Row] = field(default_factory=list)
    curves: dict[str, list[dict[str, float]]] = field(default_factory=dict)
    parts: dict[str, Part] = field(default_factory=dict)

    @classmethod
    def kept(cls, folder: Path, *, quick: bool) -> Results:
        """The results that an earlier run wrote; empty if there are none. Results of other hardware are refused: numbers of
        two machines in one table could not be compared."""
        path = _path(folder, quick)
        if not path.exists():
            return cls(quick)
        found = json.loads(path.read_text(encoding="utf-8"))
        if _hardware(found["machine"]) != _hardware(describe_machine().to_dict()):
            raise SystemExit(f"{path} was measured on another machine. Name another folder with --out, or omit --only.")
        rows = [Row(**{name: value for name, value in row.items() if name != "held"}) for row in found["rows"]]
        return cls(quick, rows, found["curves"], {name: Part.read(part) for name, part in found["parts"].items()})

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Rows added inside of this context belong to the part and replace its earlier rows."""
        if name in self.parts:
            self.rows = [row for row in self.rows if row.part != name]
        before = len(self.rows)
        yield
        self.rows[before:] = [replace(row, part=name) for row in self.rows[before:]]
        self.parts[name] = Part.now()

    def to_dict(self) -> dict[str, Any]:
        """The content of bench.json."""
        return {
            "quick": self.quick,
            "machine": describe_machine().to_dict(),
            "parts": {name: asdict(part) for name, part in self.parts.items()},
            "rows": [asdict(row) | {"held": row.held} for row in self.rows],
            "curves": self.curves,
        }

    def write(self, folder: Path) -> Path:
        """Write the JSON file and the table; return the path of the JSON file."""
        folder.mkdir(parents=True, exist_ok=True)
        path = _path(folder, self.quick)
        path.write_text(json.dumps(self.to_dict(), indent=1) + "\n", encoding="utf-8")
        path.with_suffix(".md").write_text(self.table(), encoding="utf-8")
        return path

    def in_order(self) -> list[Row]:
        """The rows sorted by engine."""
        return sorted(self.rows, key=lambda row: row.engine.split(", ")[::-1] if row.engine != "none" else [])

    def table(self) -> str:
        """The rows as a Markdown table below a line about the machine."""
        found = describe_machine()
        installed = dict.fromkeys([*found.packages, *(each for part in self.parts.values() for each in part.packages)])
        packages = ", ".join(f"{name} {version}" for name, version in installed)
        head = f"{found.processor}, {found.cores} cores; Python {found.python}, cgr {found.cgr}, {packages}"
        lines = [head, "", "| what | engine | measured | hold | |", "|---|---|---|---|---|"]
        return "\n".join([*lines, *map(line, self.in_order())]) + "\n"


def _path(folder: Path, quick: bool) -> Path:
    return folder / ("quick.json" if quick else "bench.json")


def line(row: Row) -> str:
    """The row as a line of the Markdown table."""
    hold = "" if row.hold is None else f"{row.sense} {row.hold:g}"
    verdict = {None: "", True: "held", False: "NOT HELD"}[row.held]
    value = f"{row.value:.3g}" if row.value < 1000 else f"{row.value:,.0f}"
    return f"| {row.what} | {row.engine} | {value} {row.unit} | {hold} | {verdict} |"
