"""The rows of a run and the files of a folder, compared with those of commands that nothing disturbed."""

from __future__ import annotations

import math
import sqlite3
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, cast

from cgr.lab.store import Store
from cgr.lab.store.recorded import RecordedTrace
from cgr.lab.store.schema import FILE, LOCK
from cgr.records import Probe, Record, Token

Rows = dict[tuple[str, int, str], RecordedTrace]
TOLERANCE = 1e-4  # of log-probabilities that llama.cpp computes in batches of another size


def rows(run: Path) -> Rows:
    """All of a run that does not depend on the clock, by question, seed and probe set; nothing if there is no run."""
    if not (run / FILE).is_file() or not _has_tables(run / FILE):
        return {}
    with Store.open(run) as store:
        found = [("", one) for one in store.recorded(None, whole=True)]
        for name in store.probe_sets():
            found += [(name, one) for one in store.recorded(name, whole=True)]
    by_key = {(one.question_id, one.seed, name): _timeless(one) for name, one in found}
    assert len(by_key) == len(found), "a row is doubled"
    return by_key


def _has_tables(file: Path) -> bool:
    """False for a file that was created, and whose process was killed before it wrote anything."""
    db = sqlite3.connect(file)
    try:
        return bool(db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0])
    finally:
        db.close()


def _difference(here: RecordedTrace, there: RecordedTrace) -> str:
    names = [one.name for one in fields(there) if getattr(here, one.name) != getattr(there, one.name)]
    return "; ".join(f"{name} is {getattr(here, name)!r:.300} and was {getattr(there, name)!r:.300}" for name in names)


def _timeless(trace: RecordedTrace) -> RecordedTrace:
    return replace(trace, probes=tuple(map(_costless, trace.probes)), final=_costless(trace.final))


def _costless(probe: Probe) -> Probe:
    return replace(probe, seconds=0.0, prefilled=0, cached=0)


def compare_rows(here: Rows, there: Rows, *, exact: bool) -> None:
    """The same rows; unless `exact`, log-probabilities and probabilities may differ by rounding."""
    assert here.keys() == there.keys(), f"other rows than an undisturbed command records: {here.keys() ^ there.keys()}"
    for key, row in there.items():
        assert here[key] == row if exact else _close(here[key], row), f"{key} differs: {_difference(here[key], row)}"


def _close(a: object, b: object) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return math.isclose(a, b, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(_close, a, b))
    if isinstance(a, Record | Token) and type(a) is type(b):
        return all(_close(getattr(a, one.name), getattr(b, one.name)) for one in fields(cast(Any, a)))
    return a == b


def compare_files(place: Path, wanted: Path) -> None:
    """Every file but runs and exports, which hold times, is the same. A draft of a killed command may be left."""
    names, expected = (
        {str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()} for folder in (place, wanted)
    )
    stores = {FILE, LOCK, f"{FILE}-wal", f"{FILE}-shm"}
    names, expected = (
        {name for name in some if Path(name).name not in stores and not name.endswith(".jsonl")}
        for some in (names, expected)
    )
    drafts = {name for name in names if Path(name).name.startswith(".cgr-")}
    assert names - drafts == expected, f"other files than an undisturbed command leaves: {sorted(names ^ expected)}"
    for name in expected:
        assert (place / name).read_bytes() == (wanted / name).read_bytes(), f"{name} differs"
