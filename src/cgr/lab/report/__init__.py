"""Writes the report of recorded runs: `report.json`, tables, figures, and a page that works offline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cgr import calibration
from cgr.certainty import OPTIONS
from cgr.errors import NotRecorded, UsageError
from cgr.lab import compare as comparing
from cgr.lab.compare import tables as compare_tables
from cgr.lab.compare.result import Compared
from cgr.lab.decide import replay as decisions
from cgr.lab.decide.columns import Columns
from cgr.lab.decide.run import Run
from cgr.lab.exchange import as_run_folder
from cgr.lab.output import as_json, beside, unique_names, write_json, write_table
from cgr.lab.report import figures, numbers, page, raw, tables
from cgr.lab.report.figures import FigureData
from cgr.lab.report.result import Report
from cgr.lab.score.accuracy import PENALTIES, check_penalties
from cgr.lab.store.needed_probes import rule_at_interval
from cgr.lab.store.recorded import SHADOW, RecordedTrace, RunInfo, is_shadow
from cgr.rules.base import rule_class

FOLDER, JSON = "report", "report.json"
MAX_REPLAYS = 3000  # a rule without an array form is compared on at most this many traces


@dataclass(frozen=True, eq=False)
class ReportedRun(FigureData):
    """A run under the name that it has in the report, with its traces, the comparison of all rules on it or why there is
    none, and the promise in its folder, if there is one."""

    traces: tuple[RecordedTrace, ...]
    compared: Compared | None
    why_not_compared: str
    promise: dict[str, Any] | None = None

    @property
    def info(self) -> RunInfo:
        """What the run is called, and how it was made."""
        return self.columns.info

    def named(self, name: str) -> ReportedRun:
        """The same run under another name."""
        info = replace(self.info, name=name)
        compared = replace(self.compared, run=replace(self.compared.run, name=name)) if self.compared else None
        columns, report = replace(self.columns, info=info), replace(self.report, run=info)
        return replace(self, columns=columns, report=report, compared=compared)


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
    found = [reported(run, levels, costs, probe_set, rule) for run in runs]
    found = [run.named(name) for run, name in zip(found, unique_names([run.info.name for run in found]), strict=True)]
    reports = tuple(run.report for run in found)
    write_json(folder / JSON, as_json(reports))
    for one in found:
        inside = "" if len(found) == 1 else one.info.name
        _write_run(one, folder / "tables" / inside, folder / "figures" / inside)
    if len(found) > 1:
        write_table(tables.models(reports), folder / "tables")
        figures.write_models(reports, folder / "figures")
    if compared := [run.compared for run in found if run.compared]:
        write_json(folder / comparing.JSON, as_json(compared))
    return WrittenReport(folder, _write_page(found, folder, levels, costs) if rule == "cgr" else None, reports)


def load(run: str | Path, probe_set: str | None = None) -> tuple[Run, Columns]:
    """A run (a folder, or a file of traces) and its columns, with the run's own final answers."""
    with as_run_folder(run) as folder:
        opened = Run.open(folder, probe_set)
        opened.folder = Path(run)  # a file was imported into a folder that is soon removed
        return opened, opened.rule_columns()  # read while the folder exists: that of a file is temporary


def reported(
    run: str | Path, thresholds: tuple[float, ...], penalties: tuple[float, ...], probe_set: str | None, rule: str
) -> ReportedRun:
    """The report of a run in memory: its numbers, and the comparison of all rules. `NotRecorded` if the probes of the rule
    were not recorded."""
    opened, columns = load(run, probe_set)
    read = _sets_read(opened, rule)
    decide = decisions.deciding(columns, rule, decide_rule=opened.decide)
    probes = opened.rule_columns(read[0]) if read else None
    report = numbers.report(columns, thresholds, penalties, rule=rule, decide=decide, probe_sets=read, probes=probes)
    report = replace(
        report, notes=(*report.notes, *_left_out_note(opened), *_threshold_note(rule), *_recording_notes(opened, columns))
    )
    compared, why_not = _compared(run, penalties)
    report = replace(report, aggregate=opened.spec().aggregate)
    if rule == "cgr" and report.aggregate == OPTIONS:
        report = raw.with_raw(report, columns, opened.rule_traces())
    return ReportedRun(columns, report, decide, opened.rule_traces(), compared, why_not, _promise(Path(run)))


def _threshold_note(rule: str) -> list[str]:
    """What θ means for a rule that does not read it."""
    if "threshold" in rule_class(rule).parameters():
        return []
    return [
        f"The rule {rule} has no threshold: it decides the same in every row. θ is only the certainty below which Grade "
        "counts an answer as an abstention."
    ]


def _recording_notes(run: Run, columns: Columns) -> list[str]:
    """What is different in a run that was recorded from requests."""
    source, found = run.config.source, []
    if is_shadow(source) and len(columns) > len(columns.questions):
        found.append(
            f"The {len(columns):,} requests had {len(columns.questions):,} different prompts. A prompt is one question, "
            "and each of its requests a seed."
        )
    if source == SHADOW:
        found.append(
            "The run was recorded without texts: questions and answers are hashes. On the page, #1 is the final answer of "
            "a trace, and #2 the first other one. `cgr serve --record-text` keeps the texts."
        )
    return found


def _promise(run: Path) -> dict[str, Any] | None:
    """What `cgr calibrate` promised for this run, with its sentence, or why its file cannot be used."""
    if not (path := run / calibration.FILE).is_file():
        return None
    try:
        found = calibration.read(path)
    except UsageError as error:
        return {"why": error.message}
    return found.to_dict() | {"sentence": calibration.sentence(found)}


def _sets_read(run: Run, rule: str) -> tuple[str, ...]:
    """The probe sets that this rule reads; `NotRecorded` if they were not recorded. A run without any probe is reported for
    `cgr`, and a note says so."""
    if rule == "cgr" and not run.filled:
        return ()
    return run.sets_for(rule_at_interval(rule, run.info.interval).within(run.info.budget))


def _left_out_note(run: Run) -> list[str]:
    if not (count := run.left_out):
        return []
    are = "is" if count == 1 else "are"
    whole = len(run.keys) + count
    return [f"{count} of {whole} traces {are} not in the probe set {run.main!r} and {are} left out, in the baseline too."]


def _compared(run: str | Path, penalties: tuple[float, ...]) -> tuple[Compared | None, str]:
    """The comparison of all rules, or why there is none."""
    try:
        return comparing.compare_run(run, None, penalties, max_replays=MAX_REPLAYS), ""
    except (UsageError, NotRecorded) as error:
        return None, error.message


def default_folder(runs: Sequence[Path]) -> Path:
    """The folder of a report: inside a run, beside a file of traces, or beside the first of several runs."""
    if not runs:
        raise UsageError("There is no run to report.", "Give one: cgr report runs/NAME.")
    return beside(runs, FOLDER)


def _write_run(run: ReportedRun, table_folder: Path, figure_folder: Path) -> None:
    tables.write(run.report, table_folder)
    if run.compared:
        compare_tables.write(run.compared, table_folder)
    figures.write(run, figure_folder, comparing.draw(run.compared, figure_folder, run.why_not_compared))


def _write_page(runs: Sequence[ReportedRun], folder: Path, thresholds: Sequence[float], penalties: Sequence[float]) -> Path:
    data = [(run.info, run.traces, run.report.to_dict() | {"promise": run.promise}) for run in runs]
    comparisons = [page.comparison(run.compared, run.why_not_compared) for run in runs]
    return page.write(folder, data, thresholds, penalties, comparisons)


__all__ = ["ReportedRun", "WrittenReport", "default_folder", "load", "reported", "write_report"]
