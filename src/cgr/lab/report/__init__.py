"""Writes the report of recorded runs: `report.json`, tables, figures, and a page that works offline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cgr.errors import NotRecorded, UsageError
from cgr.lab.compare import tables as compare_tables
from cgr.lab.compare import write as comparing
from cgr.lab.compare.result import Compared
from cgr.lab.decide import replay as decisions
from cgr.lab.decide.columns import Columns
from cgr.lab.decide.replay import Decide
from cgr.lab.exchange import as_run_folder
from cgr.lab.output.paths import beside, unique_names, write_json
from cgr.lab.output.table import write_table
from cgr.lab.report import figures, numbers, tables
from cgr.lab.report.result import SCHEMA, Report
from cgr.lab.store import DEFAULT, Store
from cgr.lab.store.recorded import RecordedTrace, RunInfo
from cgr.probing import ProbeSpec

FOLDER, JSON = "report", "report.json"
STEPS = 32  # of the budget, for figures of a run whose probes lie on no grid
MAX_REPLAYS = 3000  # a rule without an array form is compared on at most this many traces


@dataclass(frozen=True, eq=False)
class Loaded:
    """A run in memory: its traces without token ids, its columns, and how its probes were read; every rule on it, or why
    rules cannot be compared on it."""

    info: RunInfo
    traces: tuple[RecordedTrace, ...]
    columns: Columns
    spec: ProbeSpec
    compared: Compared | None = None
    why_not_compared: str = ""


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
    penalties: Sequence[float] = numbers.PENALTIES,
    probe_set: str | None = None,
    rule: str = "cgr",
) -> WrittenReport:
    """Write the report of these runs (folders, or files of traces) into `out`, by default a folder in or beside the run."""
    levels, costs = numbers.check_thresholds(thresholds), numbers.check_penalties(penalties)
    loaded = _with_unique_names([_compared(load(run, probe_set), run, costs) for run in runs])
    folder = Path(out) if out else default_folder([Path(run) for run in runs])
    deciders = [decisions.deciding(run.columns, rule, run.traces, run.spec) for run in loaded]
    reports = tuple(
        numbers.report(run.columns, levels, costs, rule=rule, decide=decide)
        for run, decide in zip(loaded, deciders, strict=True)
    )
    _write_numbers(loaded, reports, folder)
    _write_figures(loaded, reports, deciders, folder)
    page = _write_page(loaded, reports, folder, levels, costs) if rule == "cgr" else None
    return WrittenReport(folder, page, reports)


def load(run: str | Path, probe_set: str | None = None) -> Loaded:
    """A run's folder, or a file of traces as `cgr export` writes it."""
    with as_run_folder(run) as folder:
        return _load(folder, probe_set)


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


def _compared(loaded: Loaded, run: str | Path, penalties: Sequence[float]) -> Loaded:
    """With every rule on it, by the probes that were recorded for each."""
    try:
        return replace(loaded, compared=comparing.compare_run(run, None, penalties, patience=MAX_REPLAYS))
    except (UsageError, NotRecorded) as error:
        return replace(loaded, why_not_compared=error.message)


def _with_unique_names(runs: list[Loaded]) -> list[Loaded]:
    names = unique_names([run.info.name for run in runs])
    return [_named(run, name) for run, name in zip(runs, names, strict=True)]


def _named(run: Loaded, name: str) -> Loaded:
    info = replace(run.info, name=name)
    compared = replace(run.compared, run=replace(run.compared.run, name=name)) if run.compared else None
    return replace(run, info=info, columns=replace(run.columns, info=info), compared=compared)


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


def _write_numbers(loaded: Sequence[Loaded], reports: Sequence[Report], folder: Path) -> None:
    write_json(folder / JSON, as_json(reports))
    for run, report in zip(loaded, reports, strict=True):
        place = _place(folder / "tables", report, reports)
        tables.write(report, place)
        if run.compared:
            compare_tables.write(run.compared, place)
    if found := [run.compared for run in loaded if run.compared]:
        comparing.write_json(found, folder)
    if len(reports) > 1:
        write_table(tables.models(reports), folder / "tables")


def _write_figures(loaded: Sequence[Loaded], reports: Sequence[Report], deciders: Sequence[Decide], folder: Path) -> None:
    for run, report, decide in zip(loaded, reports, deciders, strict=True):
        place = _place(folder / "figures", report, reports)
        frontier = comparing.draw(run.compared, place, run.why_not_compared)
        figures.write(run.columns, report, place, decide=decide, more=[frontier])
    if len(reports) > 1:
        figures.write_models(reports, folder / "figures")


def _place(folder: Path, report: Report, reports: Sequence[Report]) -> Path:
    """The folder itself for one run; a folder in it for each of several runs."""
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
    comparisons = [page.comparison(run.compared, run.why_not_compared) for run in loaded]
    return Path(page.write(folder, runs, thresholds, penalties, comparisons))


__all__ = ["Loaded", "WrittenReport", "as_json", "default_folder", "load", "write_report"]
