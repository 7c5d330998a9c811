"""From runs to a report: `report.json`, tables, figures, and a page that works offline."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from cgr.errors import UsageError
from cgr.lab import decisions
from cgr.lab.columns import Columns
from cgr.lab.decisions import Decide
from cgr.lab.exchange import import_run
from cgr.lab.recording import RecordedTrace, RunInfo
from cgr.lab.report import figures, numbers, tables
from cgr.lab.report.rows import SCHEMA, Report
from cgr.lab.report.table import write_table
from cgr.lab.store import DEFAULT, Store
from cgr.probing import ProbeSpec

FOLDER, JSON = "report", "report.json"
FILES = (".jsonl", ".parquet")
STEPS = 32  # of a budget, where the probes lie on no grid


@dataclass(frozen=True, eq=False)
class Loaded:
    """A run in memory: its traces without token ids, its columns, and how its probes were read."""

    info: RunInfo
    traces: tuple[RecordedTrace, ...]
    columns: Columns
    spec: ProbeSpec


@dataclass(frozen=True, slots=True)
class WrittenReport:
    """Where a report is, and what is in it. `page` is None where the rule is one that a page cannot recompute."""

    folder: Path
    page: Path | None
    reports: tuple[Report, ...]

    def to_dict(self) -> dict[str, Any]:
        return as_json(self.reports)


def write_report(
    runs: Sequence[str | Path],
    out: str | Path | None = None,
    *,
    thresholds: Sequence[float] = numbers.THRESHOLDS,
    penalties: Sequence[float] = numbers.PENALTIES,
    probe_set: str | None = None,
    rule: str = "cgr",
) -> WrittenReport:
    """Read these runs (folders, or files of traces), and write everything about them into one folder."""
    levels, costs = numbers.check_thresholds(thresholds), numbers.check_penalties(penalties)
    loaded = _named_apart([load(run, probe_set) for run in runs])
    folder = Path(out) if out else default_folder([Path(run) for run in runs])
    deciders = [decisions.deciding(run.columns, rule, run.traces, run.spec) for run in loaded]
    reports = tuple(
        numbers.report(run.columns, levels, costs, rule=rule, decide=decide)
        for run, decide in zip(loaded, deciders, strict=True)
    )
    _write_numbers(reports, folder)
    _write_pictures(loaded, reports, deciders, folder)
    page = _write_page(loaded, reports, folder, levels, costs) if rule == "cgr" else None
    return WrittenReport(folder, page, reports)


def load(run: str | Path, probe_set: str | None = None) -> Loaded:
    """A run's folder, or a file of traces as `cgr export` writes it."""
    path = Path(run)
    if path.is_file() and path.suffix in FILES:
        with TemporaryDirectory() as scratch:
            folder = Path(scratch) / path.stem
            import_run(path, folder)
            return _load(folder, probe_set)
    if not path.exists():
        raise UsageError(
            f"There is no run {str(path)!r}.", "Give the folder that `cgr generate --out` or `cgr import` made."
        )
    return _load(path, probe_set)


def _load(folder: Path, wanted: str | None) -> Loaded:
    with Store.open(folder) as store:
        sets = store.probe_sets()
        name = wanted or (DEFAULT if DEFAULT in sets or not sets else next(iter(sets)))
        asking = sets[name].asking if name in sets else store.config.asking
        info = store.info(name)
        traces = tuple(store.recorded(name if sets or wanted else None))
    if info.interval < 1:
        info = replace(info, interval=max(1, info.budget // STEPS))
    return Loaded(info, traces, Columns.of(traces, info), ProbeSpec(aggregate=asking.aggregate))


def _named_apart(runs: list[Loaded]) -> list[Loaded]:
    """Runs of one name in different folders get numbers: each has a place of its own in the report."""
    names: set[str] = set()
    apart = []
    for run in runs:
        name = next(name for n in count(1) if (name := run.info.name if n == 1 else f"{run.info.name}-{n}") not in names)
        names.add(name)
        info = replace(run.info, name=name)
        apart.append(replace(run, info=info, columns=replace(run.columns, info=info)))
    return apart


def default_folder(runs: Sequence[Path]) -> Path:
    """Inside a run; beside a file; for several, beside the first."""
    if not runs:
        raise UsageError("There is no run to report.", "Give one: cgr report runs/NAME.")
    first = runs[0]
    if len(runs) > 1:
        return first.parent / FOLDER
    return first / FOLDER if first.is_dir() else first.with_name(f"{first.stem}-{FOLDER}")


def as_json(reports: Sequence[Report]) -> dict[str, Any]:
    """One run as itself; several as a list."""
    if len(reports) == 1:
        return reports[0].to_dict()
    return {"schema": SCHEMA, "runs": [report.to_dict() for report in reports]}


def _write_numbers(reports: Sequence[Report], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(as_json(reports), indent=1, ensure_ascii=False, allow_nan=False)
    (folder / JSON).write_text(text + "\n", encoding="utf-8")
    for report in reports:
        tables.write(report, _place(folder / "tables", report, reports))
    if len(reports) > 1:
        write_table(tables.models(reports), folder / "tables")


def _write_pictures(loaded: Sequence[Loaded], reports: Sequence[Report], deciders: Sequence[Decide], folder: Path) -> None:
    for run, report, decide in zip(loaded, reports, deciders, strict=True):
        figures.write(run.columns, report, _place(folder / "figures", report, reports), decide=decide)
    if len(reports) > 1:
        figures.write_models(reports, folder / "figures")


def _place(folder: Path, report: Report, reports: Sequence[Report]) -> Path:
    """One run has the folder to itself; several have one each."""
    return folder if len(reports) == 1 else folder / report.run.name


def _write_page(
    loaded: Sequence[Loaded],
    reports: Sequence[Report],
    folder: Path,
    thresholds: Sequence[float],
    penalties: Sequence[float],
) -> Path:
    from cgr.lab.report import page

    runs = [(run.info, run.traces, report.to_dict()) for run, report in zip(loaded, reports, strict=True)]
    return Path(page.write(folder, runs, thresholds, penalties))


__all__ = ["Loaded", "WrittenReport", "as_json", "default_folder", "load", "write_report"]
