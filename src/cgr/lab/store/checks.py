"""Check sums of everything in a run that a result depends on. SQLite notices a broken page, but not a changed value.

Each row has a sum that was computed from the row as it is read. Columns that are read only with whole traces have a sum of
their own. A list of rows has as many sums as rows, so a lost row is noticed too.
"""

from __future__ import annotations

import json
import sqlite3
import zlib
from collections.abc import Sequence
from typing import Any

from cgr.lab.store import codec

SINCE = 6  # the version of the schema that has check sums
TABLE = "CREATE TABLE checks (kind TEXT NOT NULL, row INTEGER NOT NULL, sum INTEGER NOT NULL, PRIMARY KEY (kind, row))"
RUN, QUESTION, PROBE_SET, TRACE, THINKING, PROMPT, TOKENS = (
    "run",
    "question",
    "probe set",
    "trace",
    "thinking",
    "prompt",
    "tokens",
)
LONG_OF_TRACE = (9, 12, 13)  # columns of `codec.select_trace` that are read only with whole traces
LONG_OF_PROBE, COLUMNS_OF_PROBE = 5, 15  # the same of `codec.select_probes`, and how many of its columns are summed
SETS = "SELECT name, spec FROM probe_sets ORDER BY id"
Row = Sequence[Any]


class Checks:
    """The check sums of a run. A run of an older version has none, and is read without."""

    def __init__(self, db: sqlite3.Connection, version: int) -> None:
        self.db, self.active = db, version >= SINCE

    # Reading: each raises ValueError if a sum does not agree

    def check(self, kind: str, row: int, values: Any) -> None:
        """Check one row."""
        if self.active:
            found = self.db.execute("SELECT sum FROM checks WHERE kind = ? AND row = ?", (kind, row)).fetchone()
            _agree(found is not None and found[0] == sum_of(values))

    def check_all(self, kind: str, rows: Sequence[Row]) -> None:
        """Check all rows of a kind, in the order of their numbers."""
        if self.active:
            found = self.db.execute("SELECT sum FROM checks WHERE kind = ? ORDER BY row", (kind,)).fetchall()
            _agree([one for (one,) in found] == [sum_of(row) for row in rows])

    def check_count(self, kind: str, rows: Sequence[Row]) -> None:
        """Check the number of rows of a kind."""
        if self.active:
            found = self.db.execute("SELECT count(*) FROM checks WHERE kind = ?", (kind,)).fetchone()
            _agree(found[0] == len(rows))

    def check_trace(self, number: int, row: Row, whole: bool) -> None:
        """Check a row of `codec.select_trace`."""
        self.check(TRACE, number, _short_of_trace(row))
        if whole:
            self.check(THINKING, number, [row[column] for column in LONG_OF_TRACE])

    def check_probing(self, number: int, row: Row, probes: Sequence[Row], whole: bool) -> None:
        """Check a row of `codec.PROBING`, and the rows of `codec.select_probes`."""
        self.check(probing_kind(row[0]), number, _short_of_probing(row, probes))
        if whole:
            self.check(TOKENS, number, [one[LONG_OF_PROBE] for one in probes])

    # Writing: after the row was written, in the same transaction

    def add(self, kind: str, row: int, values: Any) -> None:
        """Add the sum of a row."""
        self.db.execute("INSERT OR REPLACE INTO checks VALUES (?, ?, ?)", (kind, row, sum_of(values)))

    def add_all(self, kind: str, select: str) -> None:
        """Add or replace the sums of all rows of a small table; `select` gives their number first."""
        for number, *row in self.db.execute(select).fetchall():
            self.add(kind, number, row)

    def add_question(self, number: int) -> None:
        """Add the sum of a question."""
        self.add_all(QUESTION, f"SELECT number, id, text, gold, format FROM questions WHERE number = {number}")

    def add_probe_sets(self) -> None:
        """Add the sums of all probe sets."""
        self.add_all(PROBE_SET, "SELECT id, name, spec FROM probe_sets")

    def add_run(self) -> None:
        """Add the sum of the configuration."""
        self.add_all(RUN, "SELECT 0, config FROM run")

    def add_trace(self, number: int) -> None:
        """Add the sums of a trace."""
        row = self.db.execute(codec.select_trace(True, SINCE), (number,)).fetchone()
        self.add(TRACE, number, _short_of_trace(row))
        self.add(THINKING, number, [row[column] for column in LONG_OF_TRACE])
        self.add_all(PROMPT, f"SELECT id, prompt_ids FROM traces WHERE id = {number}")

    def add_probing(self, number: int) -> None:
        """Add the sums of the probes of a trace."""
        row = self.db.execute(codec.PROBING, (number,)).fetchone()
        probes = self.db.execute(codec.select_probes(True, SINCE), (number,)).fetchall()
        self.add(probing_kind(row[0]), number, _short_of_probing(row, probes))
        self.add(TOKENS, number, [one[LONG_OF_PROBE] for one in probes])


def write_all(db: sqlite3.Connection) -> None:
    """Compute the sums of everything that is in a run: of a run of an older version, which had none."""
    checks = Checks(db, SINCE)
    db.execute("DELETE FROM checks")
    checks.add_run()
    checks.add_probe_sets()
    for (number,) in db.execute("SELECT number FROM questions").fetchall():
        checks.add_question(number)
    for (number,) in db.execute("SELECT id FROM traces").fetchall():
        checks.add_trace(number)
    for (number,) in db.execute("SELECT id FROM probings").fetchall():
        checks.add_probing(number)


def probing_kind(probe_set: int) -> str:
    """The kind of the probings of a set: each set has its own count."""
    return f"probing {probe_set}"


def sum_of(values: Any) -> int:
    """The sum of values as SQLite returns them. It must never change: it is compared with stored ones."""
    return zlib.crc32(json.dumps(values, ensure_ascii=False, default=bytes.hex, separators=(",", ":")).encode())


def _short_of_trace(row: Row) -> list[Any]:
    return [value for column, value in enumerate(row) if column not in LONG_OF_TRACE]


def _short_of_probing(row: Row, probes: Sequence[Row]) -> list[Any]:
    return [row, [[*one[:LONG_OF_PROBE], *one[LONG_OF_PROBE + 1 : COLUMNS_OF_PROBE]] for one in probes]]


def _agree(same: bool) -> None:
    if not same:
        raise ValueError("its check sum is wrong")
