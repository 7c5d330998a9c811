"""Reads a run. Every value that a result depends on is compared with its check sum."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from cgr.errors import NotRecorded, UnknownName
from cgr.lab.store import checks, codec
from cgr.lab.store.config import DEFAULT, Failure, ProbeSet, RunConfig
from cgr.lab.store.recorded import RecordedTrace, RunInfo
from cgr.lab.store.schema import FILE, NotARun, translate_damage, translate_errors
from cgr.records import Question

Key = tuple[str, int]


class RunReader:
    """An open run; see `Store`."""

    def __init__(self, folder: Path, connection: sqlite3.Connection, version: int) -> None:
        self.folder, self.path = folder, folder / FILE
        self._db, self._version = connection, version
        self._checks = checks.Checks(connection, version)
        with translate_damage(self.path, "its configuration"):
            stored = self._one("SELECT config FROM run")
            self._checks.check(checks.RUN, 0, [stored])
            self.config = RunConfig.from_json(stored)

    def info(self, probe_set: str = DEFAULT) -> RunInfo:
        """The description of the run, with the interval and prefix of this probe set."""
        config = self.config
        source: ProbeSet | RunConfig = self.probe_sets().get(probe_set, config)
        produced = (config.model, config.engine, config.budget, source.interval, config.temperature)
        return RunInfo(self.folder.resolve().name, *produced, source.asking.prefix, config.source)

    def questions(self) -> tuple[Question, ...]:
        """Every question, in the order in which it was added."""
        with self._snapshot("a question"):
            rows = self._all(codec.QUESTIONS)
            self._checks.check_all(checks.QUESTION, rows)
            return tuple(map(codec.question_of, rows))

    def made(self) -> tuple[Key, ...]:
        """The question and seed of every trace, in order."""
        with self._snapshot("the list of traces"):
            keys = tuple(self._all(codec.KEYS))
            self._checks.check_count(checks.TRACE, keys)
            return keys

    def probe_sets(self) -> dict[str, ProbeSet]:
        """The probe sets by name, the oldest first."""
        with self._snapshot("a probe set"):
            rows = self._all(checks.SETS)
            self._checks.check_all(checks.PROBE_SET, rows)
            return {name: ProbeSet.from_json(spec) for name, spec in rows}

    def filled_sets(self) -> frozenset[str]:
        """The names of the probe sets that have a probe inside the thinking. A set is empty if its traces are shorter than
        the interval, or were imported without probes."""
        return frozenset(name for (name,) in self._all(codec.FILLED_SETS))

    def probed(self, probe_set: str) -> frozenset[Key]:
        """The question and seed of every trace that has probes in this set."""
        return frozenset(self._all(codec.KEYS_IN_SET, probe_set))

    def endings(self) -> tuple[int, int]:
        """The number of traces that ended naturally, and of those that reached the budget."""
        counts = dict(self._all("SELECT ended, count(*) FROM traces GROUP BY ended"))
        return counts.get("end_of_thinking", 0), counts.get("budget", 0)

    def failures(self, stage: str | None = None) -> tuple[Failure, ...]:
        """The failures of one stage, or of all."""
        return tuple(Failure(*row) for row in self._all(codec.FAILURES, stage, stage))

    def recorded(self, probe_set: str | None = DEFAULT, *, whole: bool = False) -> Iterator[RecordedTrace]:
        """Every trace that has probes in this set (None: every trace, without probes), by question, then seed.

        Without `whole`, long fields are left empty: token ids, their log-probabilities, and the tokens of probes.
        """
        number = None if probe_set is None else self._set_id(probe_set)
        every = "SELECT id, NULL FROM traces ORDER BY question, seed"
        with self._snapshot("the list of traces"):
            found = self._all(every) if number is None else self._all(codec.IN_SET, number)
            self._checks.check_count(checks.TRACE if number is None else checks.probing_kind(number), found)
        return (self._recorded(trace, probing, whole) for trace, probing in found)

    def trace(self, key: Key) -> RecordedTrace:
        """One trace with all its fields, without probes."""
        return self._recorded(self._trace_id(key), None, whole=True)

    def prompt_ids(self, key: Key) -> tuple[int, ...]:
        """The token ids of a trace's prompt."""
        trace = self._trace_id(key)
        with translate_damage(self.path, f"the prompt of question {key[0]!r}"):
            packed = self._one("SELECT prompt_ids FROM traces WHERE id = ?", trace)
            self._checks.check(checks.PROMPT, trace, [packed])
            return codec.unpack("I", packed)

    def unreadable(self) -> tuple[Key, ...]:
        """The question and seed of every trace that has neither token ids nor text."""
        return tuple(self._all(codec.UNREADABLE))

    def longest_text(self) -> int:
        """The most characters of a trace without token ids; 0 if there is none."""
        return self._number(self._one(codec.LONGEST_TEXT))

    # SQL

    @contextmanager
    def _snapshot(self, what: str) -> Iterator[None]:
        """Several statements that see the same state, while another process may write; damage is reported for `what`."""
        with translate_errors(self.path), translate_damage(self.path, what):
            outer = self._db.in_transaction
            if not outer:
                self._db.execute("BEGIN")
            try:
                yield
            finally:
                if not outer and self._db.in_transaction:
                    self._db.execute("COMMIT")

    def _recorded(self, trace: int, probing: int | None, whole: bool) -> RecordedTrace:
        row = next(iter(self._all(codec.select_trace(whole, self._version), trace)), None)
        probes = self._all(codec.select_probes(whole, self._version), probing) if probing else []
        with translate_damage(self.path, f"the trace of question {row[0]!r} with seed {row[1]}" if row else "a trace"):
            if row is None:
                raise ValueError("its question is gone")
            self._checks.check_trace(trace, row, whole)
            final = self._probing_final(probing, probes, whole) if probing else None
            return codec.trace_of(row, self.config.budget, tuple(map(codec.probe_of, probes)), final, whole)

    def _probing_final(self, probing: int, probes: Sequence[Any], whole: bool) -> str | None:
        """The final answer of a set, if it has one of its own, after the check of the set's probes."""
        (row,) = self._all(codec.PROBING, probing)
        self._checks.check_probing(probing, row, probes, whole)
        return cast(str | None, row[-1])

    def _trace_id(self, key: Key) -> int:
        found = self._all(codec.TRACE_ID, *key)
        if not found:
            raise NotRecorded(
                f"Question {key[0]!r} with seed {key[1]} is not in {self.folder}.", "Generate it with `cgr generate`."
            )
        return self._number(found[0][0])

    def _set_id(self, name: str) -> int:
        sets = dict(self._all("SELECT name, id FROM probe_sets"))
        if not sets:
            raise NotARun(f"The run in {self.folder} has no probes yet.", f"Make them with `cgr probe {self.folder}`.")
        if name not in sets:
            raise UnknownName.among("probe set", name, sets)
        return self._number(sets[name])

    def _number(self, value: Any) -> int:
        """A number of the store. In a file whose description of a table was damaged it may be anything."""
        with translate_damage(self.path, "a number"):
            return int(value)

    def _one(self, sql: str, *values: Any) -> Any:
        with translate_errors(self.path):
            return self._db.execute(sql, values).fetchone()[0]

    def _all(self, sql: str, *values: Any) -> list[Any]:
        with translate_errors(self.path):
            return self._db.execute(sql, values).fetchall()
