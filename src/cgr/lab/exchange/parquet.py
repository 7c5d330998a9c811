"""Lines of a run as rows of Parquet. The columns derive from `TraceLine`; nested objects are JSON in text columns."""

from __future__ import annotations

import importlib
import itertools
import json
import math
import types
import typing
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

import pydantic_core

from cgr.errors import UsageError
from cgr.lab.exchange.line import TraceLine
from cgr.lab.exchange.probe_line import ProbeCore, ProbeLine
from cgr.lab.validation import shown

ROWS = 64  # in memory at once
AS_JSON = ("final_details", "final_alternatives", "run", "probe_set", "more_probe_sets")
FLOAT32 = ("logprobs", "tops")  # the precision of the store


def write(path: Path, lines: Iterable[TraceLine]) -> int:
    """Write the rows and return their number."""
    arrow, parquet = _package("pyarrow"), _package("pyarrow.parquet")
    schema, count, left = _schema(arrow), 0, iter(lines)
    with parquet.ParquetWriter(path, schema) as writer:
        while rows := [_row(line) for line in itertools.islice(left, ROWS)]:
            writer.write_table(arrow.Table.from_pylist(rows, schema=schema))
            count += len(rows)
    return count


def rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Each row with its number."""
    parquet = _package("pyarrow.parquet")
    with _readable(path):
        file = parquet.ParquetFile(path)
    with file:
        batches = file.iter_batches(batch_size=ROWS)
        number = 0
        while True:
            with _readable(path):
                batch = next(batches, None)
                found = batch.to_pylist() if batch is not None else []
            if batch is None:
                return
            yield from enumerate(found, number + 1)
            number += len(found)


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Turn what pyarrow raises for a file that is damaged, or is none, into one sentence."""
    try:
        yield
    except (ValueError, NotImplementedError, LookupError, TypeError) as error:
        hint = "Get the file again; if it is JSONL, use --format jsonl."
        raise UsageError(f"{path} is not a Parquet file, or it is damaged.", hint) from error


def _row(line: TraceLine) -> dict[str, Any]:
    row = line.model_dump(exclude_defaults=True)
    row |= {name: json.dumps(row[name], ensure_ascii=False) for name in AS_JSON if name in row}
    return row | {"probes": [_probe_row(probe) for probe in row["probes"]]}


def _probe_row(probe: dict[str, Any]) -> dict[str, Any]:
    core = {name: probe.pop(name) for name in ProbeCore.model_fields}
    return core | {"details": json.dumps(probe, ensure_ascii=False) if probe else None}


def to_json(row: dict[str, Any]) -> bytes:
    """A row as a line of JSON. A null means that an optional field is absent; NaN log-probabilities are null too."""
    required = {name for name, field in TraceLine.model_fields.items() if field.is_required()}
    line = {name: value for name, value in row.items() if value is not None or name in required}
    line |= {name: _parsed(line[name], name) for name in AS_JSON if name in line}
    line |= {name: _without_nan(line[name]) for name in FLOAT32 if name in line}
    if isinstance(line.get("probes"), list):
        line["probes"] = [_probe(probe) for probe in line["probes"]]
    return pydantic_core.to_json(line, inf_nan_mode="constants")


def _without_nan(values: Any) -> Any:
    if not isinstance(values, list):
        return values
    return [None if isinstance(value, float) and math.isnan(value) else value for value in values]


def _probe(probe: Any) -> Any:
    if not isinstance(probe, dict):
        return probe
    details = _parsed(probe.get("details") or "{}", "details")
    return {name: value for name, value in probe.items() if name != "details" and value is not None} | details


def _parsed(text: Any, name: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, TypeError):
        value = None
    if not isinstance(value, dict):
        raise UsageError(f"{name} must be an object in JSON, not {shown(text)}.")
    return value


def _schema(arrow: Any) -> Any:
    columns = {name: _arrow_type(arrow, field.annotation) for name, field in TraceLine.model_fields.items()}
    columns |= {name: arrow.list_(arrow.float32()) for name in FLOAT32}
    return arrow.schema(list(columns.items()))


def _arrow_type(arrow: Any, hint: Any) -> Any:
    """The Arrow type of a field: a list for a tuple, JSON in a string for an object."""
    plain = {str: arrow.string(), int: arrow.int64(), float: arrow.float64(), bool: arrow.bool_()}
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in (Annotated, types.UnionType, typing.Union):  # an optional type is the first of its union
        return _arrow_type(arrow, inner[0])
    if origin is tuple:
        return arrow.list_(_arrow_type(arrow, inner[0]))
    if hint is ProbeLine:
        core = [(name, _arrow_type(arrow, field.annotation)) for name, field in ProbeCore.model_fields.items()]
        return arrow.struct([*core, ("details", arrow.string())])
    return arrow.string() if origin is Literal else plain.get(hint, arrow.string())


def _package(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise UsageError(
            "Parquet files need the package pyarrow.", "pip install 'certainty-guided-reasoning[lab]'"
        ) from error
