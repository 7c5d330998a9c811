"""Rows of a local JSONL, CSV or Parquet file. Errors name the file and the line."""

from __future__ import annotations

import csv
import importlib
import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any, NoReturn

from cgr.errors import UsageError
from cgr.lab.questions.source import SourceRow

MAX_ROWS = 10_000_000
BOM = b"\xef\xbb\xbf"


def looks_like_a_path(source: str) -> bool:
    """Whether a source is a file path rather than the name of a data set."""
    path = Path(source)
    return bool(path.suffix) or len(path.parts) > 1 or path.exists()


def read(path: Path) -> tuple[SourceRow, ...]:
    """Every row of a file; `UsageError` if there is none."""
    if path.is_dir():
        raise UsageError(f"{path} is a folder, not a file of questions.", f"Name a file in it: {', '.join(READERS)}.")
    if not path.exists():
        raise UsageError(f"There is no file {path}.", "Check the path.")
    reader = READERS.get(path.suffix.lower())
    if reader is None:
        raise UsageError(f"{path} has an unknown file type.", f"Known: {', '.join(READERS)}.")
    try:
        rows = tuple(reader(path))
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}.", "Check its permissions.") from error
    if not rows:
        raise UsageError(f"{path} contains no questions.", "It needs one row for each question.")
    return rows


def _jsonl(path: Path) -> Iterator[SourceRow]:
    """Lines end only at line feeds: a U+2028 inside a string belongs to the string."""
    for number, line in enumerate(path.read_bytes().removeprefix(BOM).split(b"\n"), start=1):
        where = f"{path.name}, line {number}"
        if not line.strip():
            continue
        try:
            values = json.loads(line.decode(), parse_float=Decimal, parse_constant=_refuse_constant)
        except UnicodeDecodeError as error:
            raise UsageError(f"{where} is not UTF-8.", "Save the file as UTF-8.") from error
        except (ValueError, RecursionError) as error:
            raise UsageError(f"{where} is not JSON: {_reason(error)}.", "Each line must be one JSON object.") from error
        if not isinstance(values, dict):
            raise UsageError(f"{where} is not a JSON object.", 'Each line must look like {"question": ..., "answer": ...}.')
        yield SourceRow(where, values)


def _reason(error: Exception) -> str:
    """The reason without the library's own line number, which is always 1 here."""
    return f"{error.msg} at column {error.colno}" if isinstance(error, json.JSONDecodeError) else str(error)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON value")


def _csv(path: Path) -> Iterator[SourceRow]:
    lines = _decoded(path).split("\n")
    reader = csv.reader((line + "\n" for line in lines), strict=True)
    header: list[str] | None = None
    begin = 1
    try:
        for cells in reader:
            where, begin = f"{path.name}, line {begin}", reader.line_num + 1
            if not any(cell.strip() for cell in cells):
                continue
            if header is None:
                header = _header(cells, where)
            else:
                yield _csv_row(header, cells, where)
    except csv.Error as error:
        raise UsageError(f"{path.name}, line {begin} is not CSV: {error}.", "Check its quotes and commas.") from error


def _decoded(path: Path) -> str:
    data = path.read_bytes().removeprefix(BOM)
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise UsageError(f"{path.name}, line {line} is not UTF-8.", "Save the file as UTF-8.") from error


def _header(cells: list[str], where: str) -> list[str]:
    names = [cell.strip() for cell in cells]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise UsageError(f"{where}: the field {twice!r} is named twice.", "Give each column its own name.")
    return names


def _csv_row(header: list[str], cells: list[str], where: str) -> SourceRow:
    if len(cells) != len(header):
        raise UsageError(f"{where} has {len(cells)} cells, the header {len(header)}.", "Check its quotes and commas.")
    return SourceRow(where, dict(zip(header, cells, strict=True)))


def _parquet(path: Path) -> Iterator[SourceRow]:
    try:
        parquet = importlib.import_module("pyarrow.parquet")
    except ImportError as error:
        raise UsageError(
            "Parquet files need the package pyarrow.", "pip install 'certainty-guided-reasoning[lab]'"
        ) from error
    try:
        rows = parquet.read_metadata(path).num_rows
        if rows > MAX_ROWS:  # a file of a few kilobytes can unfold to more than the memory holds
            raise UsageError(f"{path} has {rows:,} rows.", f"A file of questions has at most {MAX_ROWS:,}.")
        records: list[dict[str, Any]] = parquet.read_table(path).to_pylist()
    except (ValueError, OSError, NotImplementedError, LookupError, TypeError) as error:  # pyarrow's for a damaged file
        raise UsageError(f"{path} is not a Parquet file, or is damaged.", "Check how it was written.") from error
    for number, values in enumerate(records, start=1):
        yield SourceRow(f"{path.name}, row {number}", values)


READERS = {".jsonl": _jsonl, ".csv": _csv, ".parquet": _parquet}
