"""The lines of a run as rows of Parquet. What is nested beyond the probes is JSON in a column of text."""

from __future__ import annotations

import importlib
import itertools
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from cgr.errors import UsageError
from cgr.lab.exchange.fields import shown
from cgr.lab.exchange.line import PROBE, REQUIRED, Line

ROWS = 64  # in memory at once
AS_JSON = ("final_details", "run", "probe_set")


def write(path: Path, lines: Iterable[Line]) -> int:
    """Write the rows and return how many."""
    arrow, parquet = _package("pyarrow"), _package("pyarrow.parquet")
    schema, count, left = _schema(arrow), 0, iter(lines)
    with parquet.ParquetWriter(path, schema) as writer:
        while rows := [_row(line) for line in itertools.islice(left, ROWS)]:
            writer.write_table(arrow.Table.from_pylist(rows, schema=schema))
            count += len(rows)
    return count


def rows(path: Path) -> Iterator[tuple[int, Any]]:
    """Each row, with its number."""
    arrow, parquet = _package("pyarrow"), _package("pyarrow.parquet")
    try:
        file = parquet.ParquetFile(path)
    except arrow.ArrowInvalid as error:
        raise UsageError(f"{path} is not a Parquet file.", "Is it JSONL? Then say --format jsonl.") from error
    with file:
        batches = file.iter_batches(batch_size=ROWS)
        yield from enumerate(itertools.chain.from_iterable(batch.to_pylist() for batch in batches), 1)


def _row(line: Line) -> dict[str, Any]:
    probes = [{name: probe[name] for name in PROBE} | {"details": _details(probe)} for probe in line["probes"]]
    nested = {name: json.dumps(line[name], ensure_ascii=False) for name in AS_JSON if name in line}
    return line | nested | {"probes": probes}


def _details(probe: Line) -> str | None:
    rest = {name: value for name, value in probe.items() if name not in PROBE}
    return json.dumps(rest, ensure_ascii=False) if rest else None


def parsed(row: dict[str, Any]) -> Line:
    """The line that a row would be. A null is a field that is not there, but for those that every line has."""
    line = {name: value for name, value in row.items() if value is not None or name in REQUIRED}
    line |= {name: _loaded(line[name], name) for name in AS_JSON if name in line}
    if isinstance(line.get("probes"), list):
        line["probes"] = [_probe(probe) for probe in line["probes"]]
    return line


def _probe(probe: Any) -> Any:
    if not isinstance(probe, dict):
        return probe
    details = _loaded(probe.get("details") or "{}", "details")
    return {name: value for name, value in probe.items() if name != "details" and value is not None} | details


def _loaded(text: Any, name: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, TypeError):
        value = None
    if not isinstance(value, dict):
        raise UsageError(f"{name} must be an object in JSON, not {shown(text)}.")
    return value


def _schema(arrow: Any) -> Any:
    text, whole, real, truth = arrow.string(), arrow.int64(), arrow.float64(), arrow.bool_()
    probe = arrow.struct(
        [("at", whole), ("answer", text), ("probabilities", arrow.list_(real)), ("closed", truth), ("details", text)]
    )
    kinds = {
        text: ("question_id", "gold", "ended", "final_answer", "question", "format", "written", "text", *AS_JSON),
        whole: ("seed", "thinking_tokens", "budget"),
        real: ("final_certainty",),
        truth: ("eos", "final_closed"),
        arrow.list_(real): ("final_probabilities",),
        arrow.list_(arrow.float32()): ("logprobs",),
        arrow.list_(whole): ("prompt_ids", "ids"),
        arrow.list_(probe): ("probes",),
    }
    return arrow.schema([(name, kind) for kind, names in kinds.items() for name in names])


def _package(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise UsageError("Parquet files need one more package.", "pip install pyarrow") from error
