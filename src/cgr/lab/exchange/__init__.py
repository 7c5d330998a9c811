"""Runs as files that others can write and read: one trace a line of JSON, or a row of Parquet.

A file is read twice: first all of it is checked, then a run is made of it, in one transaction. So a file with a mistake in
it makes no run, and the mistake is named with its line.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

from cgr.errors import UnknownName, UsageError
from cgr.lab.exchange import parquet
from cgr.lab.exchange.consistency import Exchanged, Gathered
from cgr.lab.exchange.line import Line, Read, from_line, to_line
from cgr.lab.store import DEFAULT, Store
from cgr.lab.store.schema import FILE, folder_of

FileFormat = Literal["jsonl", "parquet"]
FORMATS = ("jsonl", "parquet")
BLANK = b" \t\r\n\xef\xbb\xbf"


def export_run(
    folder: Path,
    path: Path,
    format: FileFormat | None = None,
    *,
    probe_set: str | None = None,
    thinking: bool = True,
) -> int:
    """Write the traces of a run, with one set of its probes, and return how many. Without `thinking`, neither text nor
    tokens of it are written. The file is there when it is whole."""
    write = parquet.write if _format(path, format) == "parquet" else write_jsonl
    with Store.open(folder) as store:
        return _written_whole(path, lambda draft: write(draft, exported(store, probe_set, thinking)))


def exported(store: Store, probe_set: str | None = None, thinking: bool = True) -> Iterator[Line]:
    """Every trace as a line; of a run that was never probed, without probes."""
    sets = store.probe_sets()
    name = probe_set or (DEFAULT if DEFAULT in sets else next(iter(sets), None))
    if name is not None and name not in sets:
        raise UnknownName.among("probe set", name, sets)
    source = sets[name] if name else None
    for trace in store.recorded(name, whole=True):
        if thinking:
            yield to_line(trace, store.prompt_ids((trace.question_id, trace.seed)), store.config, source)
        else:
            yield to_line(replace(trace, ids=(), text="", logprobs=()), (), store.config, source)


def import_run(path: Path, folder: Path, format: FileFormat | None = None) -> Exchanged:
    """Make a run of a file."""
    lines = partial(_read, path, _format(path, format))
    gathered = Gathered()
    for number, found in lines():
        with _in(path, number):
            gathered.add(number, found)
    with _in(path):
        run, probe_set, form = gathered.settled(path.name)
    _refuse_made(folder)
    with Store.create(folder, run) as store, store.at_once():
        store.add_questions(replace(question, format=form or question.format) for question in gathered.questions.values())
        name = store.add_probe_set(probe_set, DEFAULT) if probe_set else None
        for _, found in lines():
            store.add_trace(found.trace, prompt_ids=found.prompt_ids, probe_set=name)
    return gathered.counts(probe_set)


def _refuse_made(folder: Path) -> None:
    """A run that was killed while it was imported is empty, and made again; any other is left alone."""
    if (folder_of(folder) / FILE).is_file():
        with Store.open(folder) as store:
            if store.made():
                raise UsageError(f"There is a run in {folder} already.", "Import into a new folder.")


def _read(path: Path, format: FileFormat) -> Iterator[tuple[int, Read]]:
    try:
        rows, parse = (parquet.rows(path), parquet.parsed) if format == "parquet" else (_lines(path), _parsed)
        for number, row in rows:
            with _in(path, number):
                found = from_line(parse(row))
            yield number, found
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}.", "Give the path of a file.") from error


@contextmanager
def _in(path: Path, number: int | None = None) -> Iterator[None]:
    """Says where a mistake is."""
    try:
        yield
    except UsageError as error:
        where = f"{path}, line {number}: " if number else f"{path}: "
        raise UsageError(where + error.message, error.hint or "docs/exchange.md has the schema.") from error


def _lines(path: Path) -> Iterator[tuple[int, Any]]:
    """Each line that is not blank, with its number."""
    with path.open("rb") as file:
        yield from ((number, raw) for number, raw in enumerate(file, 1) if raw.strip(BLANK))


def _parsed(raw: bytes) -> Any:
    try:
        return json.loads(raw.decode("utf-8-sig"), parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"this is not JSON: {error}.") from error


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number")


def write_jsonl(path: Path, lines: Iterable[Line]) -> int:
    count = 0
    with path.open("w", encoding="utf-8", newline="\n") as file:
        for line in lines:
            file.write(json.dumps(line, ensure_ascii=False, allow_nan=False) + "\n")
            count += 1
    return count


def _written_whole(path: Path, write: Callable[[Path], int]) -> int:
    """Written beside its place, and moved there when it is whole."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        count = write(draft)
        draft.replace(path)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror or error}.", "Choose another place.") from error
    finally:
        draft.unlink(missing_ok=True)
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


def import_jsonl(path: Path, run_folder: Path) -> Exchanged:
    return import_run(path, run_folder, "jsonl")


def export_jsonl(run_folder: Path, path: Path) -> int:
    return export_run(run_folder, path, "jsonl")


def import_parquet(path: Path, run_folder: Path) -> Exchanged:
    return import_run(path, run_folder, "parquet")


def export_parquet(run_folder: Path, path: Path) -> int:
    return export_run(run_folder, path, "parquet")
