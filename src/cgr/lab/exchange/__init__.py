"""Runs as files that other programs can write and read: one trace per line of JSON, or per row of Parquet.

An import reads the file twice: first it checks every line, then it creates the run in one transaction. A file with an error
creates no run, and the message names the line.
"""

from __future__ import annotations

import math
import re
import shutil
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO, Literal

from cgr.errors import UnknownName, UsageError
from cgr.files import draft
from cgr.lab.exchange import parquet
from cgr.lab.exchange.line import TraceLine, from_json, to_line
from cgr.lab.store import DEFAULT, Key, Store
from cgr.lab.store.config import Asking, ProbeSet, RunConfig
from cgr.lab.store.recorded import RecordedTrace
from cgr.lab.store.schema import FILE, folder_of
from cgr.records import AnswerFormat, Question

FileFormat = Literal["jsonl", "parquet"]
FORMATS = ("jsonl", "parquet")
STANDARD_OUTPUT = Path("-")
BOM = b"\xef\xbb\xbf"
INTEGER_0_TO_999 = re.compile(r"\s*\d{1,3}\s*")


def export_run(
    folder: Path, path: Path, format: FileFormat | None = None, *, probe_set: str | None = None, thinking: bool = True
) -> int:
    """Write the traces of a run with one probe set, and return their number. The path `-` is standard output.

    Without `thinking`, the text and the tokens of the thinking are left out. A file appears only when it is complete.
    """
    as_parquet = _format(path, format) == "parquet"
    with Store.open(folder) as store:
        lines = exported(store, probe_set, thinking)
        if path == STANDARD_OUTPUT:
            return _to_standard_output(lines, as_parquet)
        with draft(path) as place:
            return parquet.write(place, lines) if as_parquet else write_jsonl(place, lines)


def _to_standard_output(lines: Iterable[TraceLine], as_parquet: bool) -> int:
    if sys.__stdout__ is None:
        raise UsageError("Standard output is closed.", "Give the name of a file.")
    out = sys.stdout.buffer
    if not as_parquet:
        return write_lines(out, lines)
    with TemporaryDirectory() as scratch:  # Parquet needs a file in which it can go back
        count = parquet.write(Path(scratch) / "run.parquet", lines)
        with (Path(scratch) / "run.parquet").open("rb") as file:
            shutil.copyfileobj(file, out)
    return count


def exported(store: Store, probe_set: str | None = None, thinking: bool = True) -> Iterator[TraceLine]:
    """Every trace as a line; without probes if the run has none."""
    sets = store.probe_sets()
    name = probe_set or (DEFAULT if DEFAULT in sets else next(iter(sets), None))
    if name is not None and name not in sets:
        raise UnknownName.among("probe set", name, sets)
    source = sets[name] if name else None
    for trace in store.recorded(name, whole=True):
        ids = store.prompt_ids((trace.question_id, trace.seed)) if thinking else ()
        kept = trace if thinking else replace(trace, ids=(), text="", logprobs=())
        yield to_line(kept, ids, store.config, source)


def import_run(path: Path, folder: Path, format: FileFormat | None = None) -> ImportCounts:
    """Create a run from a file."""
    lines = partial(_read, path, _format(path, format))
    checked = Consistency()
    for number, line, trace in lines():
        with _located(path, number):
            checked.add(number, line, trace)
    with _located(path):
        run, probe_set, form = checked.resolve(path.name)
    _refuse_existing(folder)
    with Store.create(folder, run) as store, store.at_once():
        store.add_questions(replace(question, format=form or question.format) for question in checked.questions.values())
        name = store.add_probe_set(probe_set, DEFAULT) if probe_set else None
        for _, line, trace in lines():
            store.add_trace(trace, prompt_ids=line.prompt_ids, probe_set=name)
    return checked.counts(probe_set)


@dataclass(frozen=True, slots=True)
class ImportCounts:
    """Counts of imported traces, questions and probes, and the interval of the probes (0: irregular)."""

    traces: int
    questions: int
    probes: int
    interval: int


@dataclass(slots=True)
class Consistency:
    """All lines so far. What a line states about the whole run must be the same on every line."""

    questions: dict[str, Question] = field(default_factory=dict)
    _lines: dict[Key, tuple[int, int, tuple[int, ...]]] = field(default_factory=dict)  # number, length, probed positions
    _first: TraceLine | None = None

    def add(self, number: int, line: TraceLine, trace: RecordedTrace) -> None:
        """Check a line against those before it; `UsageError` if they contradict each other."""
        key = (line.question_id, line.seed)
        if key in self._lines:
            raise UsageError(f"question {key[0]!r} with seed {key[1]} is already in line {self._lines[key][0]}.")
        self._check_first(line)
        question = Question(line.question_id, line.question, line.gold, line.format or "integer")
        if self.questions.setdefault(line.question_id, question) != question:
            raise UsageError(f"question {key[0]!r} has another text, gold or format than in an earlier line.")
        self._lines[key] = (number, line.thinking_tokens, tuple(probe.at for probe in trace.probes))

    def _check_first(self, line: TraceLine) -> None:
        first = self._first = self._first or line
        for name in ("budget", "run", "probe_set"):
            if getattr(first, name) != getattr(line, name):
                raise UsageError(f"{name} differs from the first line.", "Import lines that differ into separate runs.")
        if (first.format is None) != (line.format is None):
            raise UsageError("format must be in every line or in none.")

    def resolve(self, source: str) -> tuple[RunConfig, ProbeSet | None, AnswerFormat | None]:
        """The run, its probe set, and the format of its answers if the lines do not state it."""
        if self._first is None:
            raise UsageError("there are no traces.")
        first = self._first
        # the greatest common divisor of all positions; the budget if there are no probes
        interval = math.gcd(*(at for _, _, positions in self._lines.values() for at in positions)) or first.budget
        probe_set = first.probe_set
        if probe_set is None and (first.run is None or any(positions for _, _, positions in self._lines.values())):
            probe_set = ProbeSet("interval", interval, first.run.asking if first.run else Asking())
        if probe_set and probe_set.where == "interval":
            self._check_interval(probe_set.interval, first.budget)
        run = first.run or RunConfig(budget=first.budget, interval=interval, source=source)
        golds = [question.gold for question in self.questions.values() if question.gold is not None]
        guessed: AnswerFormat = "integer" if all(map(INTEGER_0_TO_999.fullmatch, golds)) else "math"
        return run, probe_set, None if first.format else guessed

    def counts(self, probe_set: ProbeSet | None) -> ImportCounts:
        """The counts of all lines."""
        probes = sum(len(positions) for _, _, positions in self._lines.values())
        return ImportCounts(len(self._lines), len(self.questions), probes, probe_set.interval if probe_set else 0)

    def _check_interval(self, interval: int, budget: int) -> None:
        """Every multiple of the interval must be probed, because a rule cannot be replayed otherwise."""
        for number, length, positions in self._lines.values():
            expected = range(interval, min(length, budget - 1) + 1, interval)
            if missing := set(expected) - set(positions):
                raise UsageError(
                    f"line {number} has no probe at {min(missing)}, but the probes have an interval of {interval}.",
                    'Add this probe, or write "probe_set": {"where": "anywhere"} on every line.',
                )


def _refuse_existing(folder: Path) -> None:
    """Refuse a folder that holds traces. An empty run is left by an import that was killed, and is filled."""
    if (folder_of(folder) / FILE).is_file():
        with Store.open(folder) as store:
            if store.made():
                raise UsageError(f"There is already a run in {folder}.", "Import into a new folder.")


def _read(path: Path, format: FileFormat) -> Iterator[tuple[int, TraceLine, RecordedTrace]]:
    """Each line of the file with its number and its trace."""
    try:
        rows = parquet.rows(path) if format == "parquet" else _lines(path)
        for number, row in rows:
            with _located(path, number):
                line = from_json(row if isinstance(row, bytes) else parquet.to_json(row))
                trace = line.recorded()
            yield number, line, trace
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}.", "Give the path of a file.") from error


@contextmanager
def _located(path: Path, number: int | None = None) -> Iterator[None]:
    """Add the file and the line to the message of an error."""
    try:
        yield
    except UsageError as error:
        where = f"{path}, line {number}: " if number else f"{path}: "
        raise UsageError(where + error.message, error.hint or "The schema is in docs/exchange.md.") from error


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Each line that is not blank, with its number."""
    with path.open("rb") as file:
        for number, raw in enumerate(file, 1):
            if line := raw.removeprefix(BOM).strip():
                yield number, line


def write_jsonl(path: Path, lines: Iterable[TraceLine]) -> int:
    """Write the lines and return their number."""
    with path.open("wb") as file:
        return write_lines(file, lines)


def write_lines(file: BinaryIO, lines: Iterable[TraceLine]) -> int:
    """The same to an open file."""
    count = 0
    for line in lines:
        file.write(line.model_dump_json(exclude_defaults=True).encode() + b"\n")
        count += 1
    return count


@contextmanager
def as_run_folder(run: str | Path) -> Iterator[Path]:
    """The folder of a run. A file of traces (see `export_run`) is imported into a temporary folder first."""
    path = Path(run)
    if path.is_file() and path.suffix.lstrip(".") in FORMATS:
        with TemporaryDirectory() as scratch:
            import_run(path, Path(scratch) / path.stem)
            yield Path(scratch) / path.stem
    elif path.exists():
        yield path
    else:
        raise UsageError(
            f"There is no run {str(path)!r}.", "Give the folder that `cgr generate --out` or `cgr import` made."
        )


def _format(path: Path, given: FileFormat | None) -> FileFormat:
    return given or ("parquet" if path.suffix == ".parquet" else "jsonl")
