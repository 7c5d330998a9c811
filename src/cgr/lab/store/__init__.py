"""A run on disk: one SQLite file, written by one process at a time, in one transaction for each trace.

A trace is stored as a whole or not at all, so an interrupted command can be repeated and continues where it stopped. Other
processes can read at any time: they read trace by trace and never hold the file for long.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self, cast

from cgr import __version__
from cgr.errors import CgrError
from cgr.files import make_folder
from cgr.lab.store import codec, schema
from cgr.lab.store.codec import storable
from cgr.lab.store.config import DEFAULT, Failure, OtherConfiguration, ProbeSet, RunConfig, differences, refuse_differences
from cgr.lab.store.reading import Key, RunReader
from cgr.lab.store.recorded import RecordedTrace
from cgr.lab.store.schema import FILE, NotARun, StoreError, translate_damage, translate_errors
from cgr.records import Probe, Question

GENERATE = "generate"


def probing_stage(probe_set: str) -> str:
    """The stage under which failures of a probe set are stored."""
    return f"probe {probe_set}"


class Store(RunReader):
    """A run. Open it with `Store.open` or `Store.create`, as a context manager."""

    def __init__(
        self, folder: Path, connection: sqlite3.Connection, lock: sqlite3.Connection | None, version: int = schema.VERSION
    ) -> None:
        super().__init__(folder, connection, version)
        self._lock = lock

    @classmethod
    def create(cls, path: Path, config: RunConfig) -> Store:
        """A new run in this folder, or the existing one if it has the same configuration; open for writing."""
        make_folder(schema.folder_of(path))
        store = cls._opened(path, config, write=True)
        try:
            hint = "Choose another --out, or repeat the options of the run. To add probes, use `cgr probe`."
            refuse_differences(f"The run in {store.folder}", store.config, config, hint)
        except OtherConfiguration:
            store.close()
            raise
        return store

    @classmethod
    def open(cls, path: Path, *, write: bool = False) -> Store:
        """The run in this folder, for reading or also for writing."""
        folder = schema.folder_of(path)
        if not (folder / FILE).is_file():
            raise schema.no_run(folder)
        return cls._opened(path, None, write=write)

    @classmethod
    def stored_config(cls, path: Path) -> RunConfig | None:
        """The configuration of the run in this folder; None if there is no run."""
        if not (schema.folder_of(path) / FILE).is_file():
            return None
        try:
            with cls.open(path) as store:
                return store.config
        except schema.EmptyFile:
            return None

    @classmethod
    def _opened(cls, path: Path, config: RunConfig | None, *, write: bool) -> Store:
        folder = schema.folder_of(path)
        with ExitStack() as undo, translate_errors(folder / FILE):
            lock = schema.lock_writer(folder) if write else None
            if lock:
                undo.callback(lock.close)
            db = schema.connect(folder / FILE, create=config is not None, write=write)
            undo.callback(db.close)
            if config is not None:
                schema.write_schema(db, config.to_json(), __version__)
            version = schema.check_schema(db, folder / FILE, write=write)
            store = cls(folder, db, lock, version)
            undo.pop_all()
        return store

    def close(self) -> None:
        """Close the run. A writer leaves one plain file, unless another process is reading it."""
        if self._lock:
            with suppress(sqlite3.OperationalError):
                self._db.execute("PRAGMA busy_timeout=0")
                self._db.execute("PRAGMA journal_mode=DELETE")
            self._lock.close()
        self._db.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    # Writing

    def add_questions(self, questions: Iterable[Question]) -> None:
        """Add the new questions. A question that is already stored must be equal."""
        with self.at_once(), translate_damage(self.path, "a question"):
            for question in questions:
                stored = self._all("SELECT id, text, gold, format FROM questions WHERE id = ?", question.id)
                if not stored:
                    row = (question.id, storable(question.text), question.gold, question.format)
                    added = self._insert("INSERT INTO questions (id, text, gold, format) VALUES (?, ?, ?, ?)", row)
                    self._checks.add_question(added)
                elif codec.question_of(stored[0]) != replace(question, text=storable(question.text)):
                    raise OtherConfiguration(
                        f"Question {question.id!r} is different in {self.folder}.", "Choose another --out."
                    )

    def add_trace(
        self, trace: RecordedTrace, *, prompt_ids: Sequence[int] = (), seconds: float = 0.0, probe_set: str | None = None
    ) -> None:
        """Add a trace and, if it was probed while it was generated, its probes, in one transaction."""
        number, question = self._question(trace.question_id)
        row = codec.trace_row(question, number, trace, prompt_ids, seconds)
        with self.at_once():
            added = self._insert(codec.INSERT_TRACE, row)
            self._checks.add_trace(added)
            self._forget_failure((trace.question_id, trace.seed), GENERATE)
            if probe_set is not None:
                self._insert_probing(added, probe_set, trace.probes, None)

    def add_probing(self, key: Key, probe_set: str, probes: Iterable[Probe], final: Probe | None = None) -> None:
        """Add the probes of one trace in one transaction; `final` if the set has another final answer than the trace."""
        with self.at_once():
            self._insert_probing(self._trace_id(key), probe_set, probes, final)
            self._forget_failure(key, probing_stage(probe_set))

    def add_probe_set(self, probe_set: ProbeSet, name: str | None = None) -> str:
        """Add a probe set unless it is already stored. Returns its name: the given, the stored, or a new one."""
        sets = self.probe_sets()
        if name is None:
            same = (one for one, stored in sets.items() if not differences(stored, probe_set))
            name = next(same, None) or probe_set.new_name(sets)
        if name in sets:
            what, hint = f"The probe set {name!r}", "Choose another name with --probes, or leave --probes out."
            refuse_differences(what, sets[name], probe_set, hint)
        else:
            with self.at_once():
                self._db.execute("INSERT INTO probe_sets (name, spec) VALUES (?, ?)", (name, probe_set.to_json()))
                self._checks.add_probe_sets()
        return name

    def add_failure(self, key: Key, stage: str, error: CgrError) -> None:
        """Store why a trace could not be made or probed. The entry is removed when it succeeds."""
        row = (self._question_number(key[0]), key[1], stage, storable(error.message), storable(error.hint))
        with self.at_once():
            self._db.execute("INSERT OR REPLACE INTO failures VALUES (?, ?, ?, ?, ?)", row)

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """A transaction: everything that is added inside is stored, or nothing."""
        if self._db.in_transaction:
            yield
            return
        with translate_errors(self.path):
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._db.execute("COMMIT")
            finally:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")

    # SQL

    def _insert_probing(self, trace: int, probe_set: str, probes: Iterable[Probe], final: Probe | None) -> None:
        own = self._one("SELECT final FROM traces WHERE id = ?", trace)
        other = codec.final_text(final) if final else own
        values = (self._set_id(probe_set), trace, None if other == own else other)
        number = self._insert("INSERT INTO probings (probe_set, trace, final) VALUES (?, ?, ?)", values)
        self._db.executemany(codec.INSERT_PROBE, [codec.probe_row(number, probe) for probe in probes])
        self._checks.add_probing(number)

    def _forget_failure(self, key: Key, stage: str) -> None:
        where = (self._question_number(key[0]), key[1], stage)
        self._db.execute("DELETE FROM failures WHERE question = ? AND seed = ? AND stage = ?", where)

    def _question(self, question: str) -> tuple[int, Question]:
        (found,) = self._all("SELECT number, id, text, gold, format FROM questions WHERE id = ?", question)
        return self._number(found[0]), Question(*found[1:])

    def _question_number(self, question: str) -> int:
        return self._number(self._one("SELECT number FROM questions WHERE id = ?", question))

    def _insert(self, sql: str, row: Sequence[Any]) -> int:
        return cast(int, self._db.execute(sql, row).lastrowid)


__all__ = ["DEFAULT", "GENERATE", "Failure", "Key", "NotARun", "OtherConfiguration", "Store", "StoreError", "probing_stage"]
