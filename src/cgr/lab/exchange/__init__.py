"""Runs as files that other programs can write and read: one trace per line of JSON, which may be compressed with gzip, or
per row of Parquet.

An import reads the file twice: first it checks every line, then it creates the run in one transaction. A file with an error
creates no run, and the message names the line.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO, Literal

from cgr.errors import UnknownName, UsageError
from cgr.files import draft
from cgr.lab.exchange import gzipped, parquet
from cgr.lab.exchange.consistency import START, Consistency, ImportCounts, start_of
from cgr.lab.exchange.line import TraceLine, as_json, from_json, to_line
from cgr.lab.exchange.probe_line import more_probes
from cgr.lab.store import DEFAULT, Key, Store
from cgr.lab.store.config import ProbeSet
from cgr.lab.store.listing import holds_traces
from cgr.lab.store.recorded import RecordedTrace
from cgr.records import Probe

FileFormat = Literal["jsonl", "parquet"]
FORMATS = ("jsonl", "parquet")
STANDARD_OUTPUT = Path("-")
BOM = b"\xef\xbb\xbf"


def export_run(
    folder: Path,
    path: Path,
    format: FileFormat | None = None,
    *,
    probe_set: str | None = None,
    thinking: bool = True,
    text: bool = True,
    all_probes: bool = False,
    alternatives: bool = True,
    digits: int | None = None,
) -> int:
    """Write the traces of a run with one probe set, and return their number. The path `-` is standard output. With
    `all_probes`, the other sets that hold all of these traces are written too. `digits`: round numbers to so many
    significant digits, which makes a compressed file of JSON lines much smaller.

    Without `thinking`, the text and the tokens of the thinking are left out; without `text`, also those of the questions
    and what the model wrote, and of the paths of models and questions only the name of the file is kept. Without
    `alternatives`, the tokens of probes have no list of other tokens, which is half of a file. A file appears only when it
    is complete.
    """
    as_parquet = _format(path, format) == "parquet"
    if as_parquet and digits is not None:
        raise UsageError("The numbers of a Parquet file are not rounded.", "Leave out --digits, or write a JSONL file.")
    with Store.open(folder) as store:
        lines = exported(store, probe_set, thinking and text, text, all_probes, alternatives)
        if path == STANDARD_OUTPUT:
            return _to_standard_output(lines, as_parquet, digits)
        with draft(path) as place:
            if as_parquet:
                return parquet.write(place, lines)
            return write_jsonl(place, lines, compress=gzipped.is_gzipped(path), digits=digits)


def _to_standard_output(lines: Iterable[TraceLine], as_parquet: bool, digits: int | None) -> int:
    if sys.__stdout__ is None:
        raise UsageError("Standard output is closed.", "Give the name of a file.")
    out = sys.stdout.buffer
    if not as_parquet:
        return write_lines(out, lines, digits)
    with TemporaryDirectory() as scratch:  # Parquet needs a file in which it can go back
        count = parquet.write(Path(scratch) / "run.parquet", lines)
        with (Path(scratch) / "run.parquet").open("rb") as file:
            shutil.copyfileobj(file, out)
    return count


def exported(
    store: Store,
    probe_set: str | None = None,
    thinking: bool = True,
    text: bool = True,
    all_probes: bool = False,
    alternatives: bool = True,
) -> Iterator[TraceLine]:
    """Every trace as a line; without probes if the run has none. The other parameters: see `export_run`."""
    sets = store.probe_sets()
    name = probe_set or (DEFAULT if DEFAULT in sets else next(iter(sets), None))
    if name is not None and name not in sets:
        raise UnknownName.among("probe set", name, sets)
    others = _other_sets(store, sets, name) if all_probes and name else {}
    before = {} if others else _before_thinking(store, sets, name)
    config, specs = store.config, {one: sets[one] for one in (name, *others) if one}
    if not text:
        config = replace(config, model=_file_name(config.model), source=_file_name(config.source))
        specs = {one: replace(spec, model=_file_name(spec.model)) for one, spec in specs.items()}
    for trace in store.recorded(name, whole=True):
        key = (trace.question_id, trace.seed)
        ids = store.prompt_ids(key) if thinking else ()
        kept = trace if thinking else replace(trace, ids=(), text="", logprobs=())
        kept = kept if text else replace(kept, question="", written="")
        kept = replace(kept, probes=before.get(key, ()) + kept.probes)
        found = {one: _of(key, traces) for one, traces in others.items()}
        if not alternatives:
            kept, found = _without_alternatives(kept), {one: _without_alternatives(each) for one, each in found.items()}
        more = {one: more_probes(each, specs[one], kept.final) for one, each in found.items()}
        yield to_line(kept, ids, config, specs[name] if name else None, more)


def _other_sets(store: Store, sets: Iterable[str], name: str) -> dict[str, Iterator[RecordedTrace]]:
    """The other sets in which every trace of this one was probed, with their traces, which come in the same order."""
    probed = store.probed(name)
    return {one: store.recorded(one, whole=True) for one in sets if one != name and probed <= store.probed(one)}


def _without_alternatives(trace: RecordedTrace) -> RecordedTrace:
    """The trace with the tokens that probes decoded, and not those that they might have decoded."""

    def only_chosen(probe: Probe) -> Probe:
        return replace(probe, tokens=tuple(replace(token, top=()) for token in probe.tokens))

    return replace(trace, probes=tuple(map(only_chosen, trace.probes)), final=only_chosen(trace.final))


def _of(key: Key, traces: Iterator[RecordedTrace]) -> RecordedTrace:
    return next(trace for trace in traces if (trace.question_id, trace.seed) == key)


def _file_name(where: str) -> str:
    """A model or a source of questions without the folders of a path: `gsm8k:/home/me/test.jsonl` is `gsm8k:test.jsonl`."""
    kind, colon, path = where.rpartition(":")
    return f"{kind}{colon}{Path(path).name}" if Path(path).is_absolute() or path.startswith("~") else where


def _before_thinking(store: Store, sets: Mapping[str, ProbeSet], name: str | None) -> dict[Key, tuple[Probe, ...]]:
    """The probes at 0 that an import of the lines would put into a set of their own again; none if it would not."""
    start = start_of(sets[name]) if name and sets[name].where != "start" else None
    found = next((one for one, probe_set in sets.items() if probe_set == start), None)
    if name is None or found is None or not store.probed(name) <= store.probed(found):
        return {}
    return {(trace.question_id, trace.seed): trace.probes for trace in store.recorded(found, whole=True)}


def import_run(path: Path, folder: Path, format: FileFormat | None = None) -> ImportCounts:
    """Create a run from a file."""
    lines = partial(_read, path, _format(path, format))
    checked = Consistency()
    for number, line, trace in lines():
        with _located(path, number):
            checked.add(number, line, trace)
    with _located(path):
        run, probe_set, start, form = checked.resolve(path.name)
    _refuse_existing(folder)
    with Store.create(folder, run) as store, store.at_once():
        store.add_questions(replace(question, format=form or question.format) for question in checked.questions.values())
        name = store.add_probe_set(probe_set, DEFAULT) if probe_set else None
        before = store.add_probe_set(start, START) if start else None
        for other, spec in checked.more_sets().items():
            store.add_probe_set(spec, other)
        for _, line, trace in lines():
            key, later = (trace.question_id, trace.seed), tuple(probe for probe in trace.probes if probe.at)
            store.add_trace(replace(trace, probes=later), prompt_ids=line.prompt_ids, probe_set=name)
            if before:
                store.add_probing(key, before, trace.probes[: len(trace.probes) - len(later)])
            for other, (probes, final) in line.recorded_more().items():
                store.add_probing(key, other, probes, final)
    return checked.counts(probe_set)


def _refuse_existing(folder: Path) -> None:
    """Refuse a folder that holds traces. An empty run is left by an import that was killed, and is filled."""
    if holds_traces(folder):
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
    for number, raw in enumerate(gzipped.read_lines(path) if gzipped.is_gzipped(path) else _plain_lines(path), 1):
        if line := raw.removeprefix(BOM).strip():
            yield number, line


def _plain_lines(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        yield from file


def write_jsonl(path: Path, lines: Iterable[TraceLine], *, compress: bool = False, digits: int | None = None) -> int:
    """Write the lines and return their number."""
    with gzipped.written(path, compress=compress) as file:
        return write_lines(file, lines, digits)


def write_lines(file: BinaryIO, lines: Iterable[TraceLine], digits: int | None = None) -> int:
    """The same to an open file."""
    count = 0
    for line in lines:
        file.write(as_json(line, digits) + b"\n")
        count += 1
    return count


@contextmanager
def as_run_folder(run: str | Path) -> Iterator[Path]:
    """The folder of a run. A file of traces (see `export_run`) is imported into a temporary folder first."""
    path = Path(run)
    if path.is_file() and gzipped.plain_name(path).suffix.lstrip(".") in FORMATS:
        with TemporaryDirectory() as scratch:
            folder = Path(scratch) / gzipped.plain_name(path).stem
            import_run(path, folder)
            yield folder
    elif path.exists():
        yield path
    else:
        raise UsageError(
            f"There is no run {str(path)!r}.", "Give the folder that `cgr generate --out` or `cgr import` made."
        )


def _format(path: Path, given: FileFormat | None) -> FileFormat:
    found: FileFormat = given or ("parquet" if gzipped.plain_name(path).suffix == ".parquet" else "jsonl")
    if found == "parquet" and gzipped.is_gzipped(path):
        raise UsageError("A Parquet file is not compressed with gzip.", "It is compressed inside: leave out .gz.")
    return found
