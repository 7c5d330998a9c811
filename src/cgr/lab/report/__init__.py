"""From runs to a report: `report.json`, tables, figures, and a page that works offline."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cgr.errors import NotRecorded, UsageError
from cgr.lab.compare import tables as compared
from cgr.lab.compare import write as comparing
from cgr.lab.compare.result import Compared
from cgr.lab.decide import replay as decisions
from cgr.lab.decide.columns import Columns
from cgr.lab.decide.replay import Decide
from cgr.lab.decide.run import Run
from cgr.lab.output.paths import beside, folder_of, told_apart
from cgr.lab.output.table import write_table
from cgr.lab.report import figures, numbers, tables
from cgr.lab.report.result import SCHEMA, Report
from cgr.lab.store.recorded import RecordedTrace, RunInfo
from cgr.probing import ProbeSpec

FOLDER, JSON = "report", "report.json"
STEPS = 32  # of a budget, where the probes lie on no grid
REPLAYS = 3000  # traces that a rule without a form over arrays may take of a report's time


@dataclass(frozen=True, eq=False)
class ReportedRun:
    """A run under the name that it has in the report, and the comparison of all rules on it or why there is none."""

    info: RunInfo
    traces: tuple[RecordedTrace, ...]
    columns: Columns
    spec: ProbeSpec
    compared: Compared | None = None
    why_not_compared: str = ""


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
    loaded = _named_apart([_compared(load(run, probe_set), run, costs) for run in runs])
    folder = Path(out) if out else default_folder([Path(run) for run in runs])
    deciders = [decisions.deciding(run.columns, rule, run.traces, run.spec) for run in loaded]
    reports = tuple(
        numbers.report(run.columns, levels, costs, rule=rule, decide=decide)
        for run, decide in zip(loaded, deciders, strict=True)
    )
    _write_numbers(loaded, reports, folder)
    _write_pictures(loaded, reports, deciders, folder)
    page = _write_page(loaded, reports, folder, levels, costs) if rule == "cgr" else None
    return WrittenReport(folder, page, reports)


def load(run: str | Path, probe_set: str | None = None) -> ReportedRun:
    """A run's folder, or a file of traces as `cgr export` writes it."""
    with folder_of(run) as folder:
        return _load(folder, probe_set)


def _load(folder: Path, probe_set: str | None) -> ReportedRun:
    run = Run.open(folder, probe_set)
    info = run.info if run.info.interval >= 1 else replace(run.info, interval=max(1, run.info.budget // STEPS))
    return ReportedRun(info, run.traces(), replace(run.columns(), info=info), run.spec())


def _compared(loaded: ReportedRun, run: str | Path, penalties: Sequence[float]) -> ReportedRun:
    """With every rule on it, by the probes that were recorded for each."""
    try:
        return replace(loaded, compared=comparing.compare_run(run, None, penalties, patience=REPLAYS))
    except (UsageError, NotRecorded) as error:
        return replace(loaded, why_not_compared=error.message)


def _named_apart(runs: list[ReportedRun]) -> list[ReportedRun]:
    names = told_apart([run.info.name for run in runs])
    return [_named(run, name) for run, name in zip(runs, names, strict=True)]


def _named(run: ReportedRun, name: str) -> ReportedRun:
    info = replace(run.info, name=name)
    compared = replace(run.compared, run=replace(run.compared.run, name=name)) if run.compared else None
    return replace(run, info=info, columns=replace(run.columns, info=info), compared=compared)


def default_folder(runs: Sequence[Path]) -> Path:
    """Inside a run; beside a file; for several, beside the first."""
    if not runs:
        raise UsageError("There is no run to report.", "Give one: cgr report runs/NAME.")
    return beside(runs, FOLDER)


def as_json(reports: Sequence[Report]) -> dict[str, Any]:
    """One run as itself; several as a list."""
    if len(reports) == 1:
        return reports[0].to_dict()
    return {"schema": SCHEMA, "runs": [report.to_dict() for report in reports]}


def _write_numbers(loaded: Sequence[ReportedRun], reports: Sequence[Report], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(as_json(reports), indent=1, ensure_ascii=False, allow_nan=False)
    (folder / JSON).write_text(text + "\n", encoding="utf-8")
    for run, report in zip(loaded, reports, strict=True):
        place = _place(folder / "tables", report, reports)
        tables.write(report, place)
        if run.compared:
            compared.write(run.compared, place)
    if found := [run.compared for run in loaded if run.compared]:
        comparing.write_json(found, folder)
    if len(reports) > 1:
        write_table(tables.models(reports), folder / "tables")


def _write_pictures(
    loaded: Sequence[ReportedRun], reports: Sequence[Report], deciders: Sequence[Decide], folder: Path
) -> None:
    for run, report, decide in zip(loaded, reports, deciders, strict=True):
        place = _place(folder / "figures", report, reports)
        frontier = comparing.draw(run.compared, place, run.why_not_compared)
        figures.write(run.columns, report, place, decide=decide, more=[frontier])
    if len(reports) > 1:
        figures.write_models(reports, folder / "figures")


def _place(folder: Path, report: Report, reports: Sequence[Report]) -> Path:
    """One run has the folder to itself; several have one each."""
    return folder if len(reports) == 1 else folder / report.run.name


def _write_page(
    loaded: Sequence[ReportedRun],
    reports: Sequence[Report],
    folder: Path,
    thresholds: Sequence[float],
    penalties: Sequence[float],
) -> Path:
    from cgr.lab.report import page

    runs = [(run.info, run.traces, report.to_dict()) for run, report in zip(loaded, reports, strict=True)]
    comparisons = [page.comparison(run.compared, run.why_not_compared) for run in loaded]
    return Path(page.write(folder, runs, thresholds, penalties, comparisons))


__all__ = ["ReportedRun", "WrittenReport", "as_json", "default_folder", "load", "write_report"]
