"""Writes the report of recorded runs: `report.json`, tables, figures, and a page that works offline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cgr.errors import NotRecorded, UsageError
from cgr.lab import compare as comparing
from cgr.lab.compare import tables as compare_tables
from cgr.lab.compare.result import Compared
from cgr.lab.decide import replay as decisions
from cgr.lab.decide.columns import Columns
from cgr.lab.decide.replay import Decide
from cgr.lab.decide.run import Run
from cgr.lab.exchange import as_run_folder
from cgr.lab.output.paths import beside, unique_names, write_json
from cgr.lab.output.table import write_table
from cgr.lab.report import figures, numbers, tables
from cgr.lab.report.result import SCHEMA, Report
from cgr.lab.score.accuracy import PENALTIES, check_penalties
from cgr.lab.store.recorded import RecordedTrace, RunInfo

FOLDER, JSON = "report", "report.json"
STEPS = 32  # of the budget, for figures of a run whose probes lie on no grid
MAX_REPLAYS = 3000  # a rule without an array form is compared on at most this many traces


@dataclass(frozen=True, eq=False)
class ReportedRun:
    """A run under the name that it has in the report, the rule's decisions on it, its numbers, and the comparison of all
    rules on it or why there is none."""

    info: RunInfo
    traces: tuple[RecordedTrace, ...]
    columns: Columns
    decide: Decide
    report: Report
    compared: Compared | None
    why_not_compared: str


@dataclass(frozen=True, slots=True)
class WrittenReport:
    """The folder of a report and its numbers. `page` is None if the rule is not `cgr`: a page recomputes only that one."""

    folder: Path
    page: Path | None
    reports: tuple[Report, ...]

    def to_dict(self) -> dict[str, Any]:
        """The content of report.json."""
        return as_json(self.reports)


def write_report(
    runs: Sequence[str | Path],
    out: str | Path | None = None,
    *,
    thresholds: Sequence[float] = numbers.THRESHOLDS,
    penalties: Sequence[float] = PENALTIES,
    probe_set: str | None = None,
    rule: str = "cgr",
) -> WrittenReport:
    """Write the report of these runs (folders, or files of traces) into `out`, by default a folder in or beside the run."""
    levels, costs = numbers.check_thresholds(thresholds), check_penalties(penalties)
    folder = Path(out) if out else default_folder([Path(run) for run in runs])
    found = _with_unique_names([_reported(run, levels, costs, probe_set, rule) for run in runs])
    reports = tuple(run.report for run in found)
    write_json(folder / JSON, as_json(reports))
    _write_tables(found, folder / "tables")
    _write_figures(found, folder / "figures")
    if compared := [run.compared for run in found if run.compared]:
        comparing.write_json(compared, folder)
    page = _write_page(found, folder, levels, costs) if rule == "cgr" else None
    return WrittenReport(folder, page, reports)


def load(run: str | Path, probe_set: str | None = None) -> tuple[Run, Columns]:
    """A run (a folder, or a file of traces) and its columns, whose steps lie on a grid even if the probes do not."""
    with as_run_folder(run) as folder:
        opened = Run.open(folder, probe_set)
        interval = opened.info.interval if opened.info.interval >= 1 else max(1, opened.info.budget // STEPS)
        opened.traces()  # read while the folder exists: that of a file is temporary
        return opened, replace(opened.columns(), info=replace(opened.info, interval=interval))


def _reported(
    run: str | Path, thresholds: tuple[float, ...], penalties: tuple[float, ...], probe_set: str | None, rule: str
) -> ReportedRun:
    opened, columns = load(run, probe_set)
    compared, why_not = _compared(run, penalties)
    decide = decisions.deciding(columns, rule, opened.traces(), opened.spec())
    report = numbers.report(columns, thresholds, penalties, rule=rule, decide=decide)
    return ReportedRun(columns.info, opened.traces(), columns, decide, report, compared, why_not)


def _compared(run: str | Path, penalties: tuple[float, ...]) -> tuple[Compared | None, str]:
    """The comparison of all rules, or why there is none."""
    try:
        return comparing.compare_run(run, None, penalties, max_replays=MAX_REPLAYS), ""
    except (UsageError, NotRecorded) as error:
        return None, error.message


def _with_unique_names(runs: list[ReportedRun]) -> list[ReportedRun]:
    names = unique_names([run.info.name for run in runs])
    return [_named(run, name) for run, name in zip(runs, names, strict=True)]


def _named(run: ReportedRun, name: str) -> ReportedRun:
    info = replace(run.info, name=name)
    compared = replace(run.compared, run=replace(run.compared.run, name=name)) if run.compared else None
    columns, report = replace(run.columns, info=info), replace(run.report, run=info)
    return replace(run, info=info, columns=columns, report=report, compared=compared)


def default_folder(runs: Sequence[Path]) -> Path:
    """The folder of a report: inside a run, beside a file of traces, or beside the first of several runs."""
    if not runs:
        raise UsageError("There is no run to report.", "Give one: cgr report runs/NAME.")
    return beside(runs, FOLDER)


def as_json(reports: Sequence[Report]) -> dict[str, Any]:
    """The content of report.json: one report, or a list of several."""
    if len(reports) == 1:
        return reports[0].to_dict()
    return {"schema": SCHEMA, "runs": [report.to_dict() for report in reports]}


def _write_tables(runs: Sequence[ReportedRun], folder: Path) -> None:
    for run in runs:
        place = _place(folder, run, runs)
        tables.write(run.report, place)
        if run.compared:
            compare_tables.write(run.compared, place)
    if len(runs) > 1:
        write_table(tables.models([run.report for run in runs]), folder)


def _write_figures(runs: Sequence[ReportedRun], folder: Path) -> None:
    for run in runs:
        place = _place(folder, run, runs)
        frontier = comparing.draw(run.compared, place, run.why_not_compared)
        figures.write(run.columns, run.report, place, decide=run.decide, more=[frontier])
    if len(runs) > 1:
        figures.write_models([run.report for run in runs], folder)


def _place(folder: Path, run: ReportedRun, runs: Sequence[ReportedRun]) -> Path:
    """The folder itself for one run; a folder in it for each of several runs."""
    return folder if len(runs) == 1 else folder / run.info.name


def _write_page(runs: Sequence[ReportedRun], folder: Path, thresholds: Sequence[float], penalties: Sequence[float]) -> Path:
    from cgr.lab.report import page

    data = [(run.info, run.traces, run.report.to_dict()) for run in runs]
    comparisons = [page.comparison(run.compared, run.why_not_compared) for run in runs]
    return page.write(folder, data, thresholds, penalties, comparisons)


__all__ = ["WrittenReport", "as_json", "default_folder", "load", "write_report"]
