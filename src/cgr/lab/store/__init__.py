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
from cgr.errors import CgrError, NotRecorded, UnknownName
from cgr.files import make_folder
from cgr.lab.store import codec, schema
from cgr.lab.store.codec import storable
from cgr.lab.store.config import DEFAULT, Failure, OtherConfiguration, ProbeSet, RunConfig, differences, refuse_differences
from cgr.lab.store.recorded import RecordedTrace, RunInfo
from cgr.lab.store.schema import FILE, NotARun, StoreError, translate_damage, translate_errors
from cgr.records import Probe, Question

GENERATE = "generate"
Key = tuple[str, int]


def probing_stage(probe_set: str) -> str:
    """The stage under which failures of a probe set are stored."""
    return f"probe {probe_set}"


class Store:
    """A run. Open it with `Store.open` or `Store.create`, as a context manager."""

    def __init__(
        self, folder: Path, connection: sqlite3.Connection, lock: sqlite3.Connection | None, version: int = schema.VERSION
    ) -> None:
        self.folder, self.path = folder, folder / FILE
        self._db, self._lock, self._version = connection, lock, version
        with translate_damage(self.path, "its configuration"):
            self.config = RunConfig.from_json(self._one("SELECT config FROM run"))

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
            raise NotARun(f"There is no run in {folder}.", "Make one with `cgr generate` or `cgr import`.")
        return cls._opened(path, None, write=write)

    @classmethod
    def stored_config(cls, path: Path) -> RunConfig | None:
        """The configuration of the run in this folder; None if there is no run."""
        if not (schema.folder_of(path) / FILE).is_file():
            return None
        with cls.open(path) as store:
            return store.config

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

    # Reading

    def info(self, probe_set: str = DEFAULT) -> RunInfo:
        """The description of the run, with the interval and prefix of this probe set."""
        config = self.config
        source: ProbeSet | RunConfig = self.probe_sets().get(probe_set, config)
        produced = (config.model, config.engine, config.budget, source.interval, config.temperature)
        return RunInfo(self.folder.resolve().name, *produced, source.asking.prefix, config.source)

    def questions(self) -> tuple[Question, ...]:
        """Every question, in the order in which it was added."""
        with translate_damage(self.path, "a question"):
            return tuple(map(codec.question_of, self._all(codec.QUESTIONS)))

    def made(self) -> tuple[Key, ...]:
        """The question and seed of every trace, in order."""
        return tuple(self._all(codec.KEYS))

    def probe_sets(self) -> dict[str, ProbeSet]:
        """The probe sets by name, the oldest first."""
        rows = self._all("SELECT name, spec FROM probe_sets ORDER BY id")
        with translate_damage(self.path, "a probe set"):
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
        if probe_set is None:
            found = self._all("SELECT id, NULL FROM traces ORDER BY question, seed")
        else:
            found = self._all(codec.IN_SET, self._set_id(probe_set))
        return (self._recorded(trace, probing, whole) for trace, probing in found)

    def trace(self, key: Key) -> RecordedTrace:
        """One trace with all its fields, without probes."""
        return self._recorded(self._trace_id(key), None, whole=True)

    def prompt_ids(self, key: Key) -> tuple[int, ...]:
        """The token ids of a trace's prompt."""
        return codec.unpack("I", self._one("SELECT prompt_ids FROM traces WHERE id = ?", self._trace_id(key)))

    def unreadable(self) -> tuple[Key, ...]:
        """The question and seed of every trace that has neither token ids nor text."""
        return tuple(self._all(codec.UNREADABLE))

    def longest_text(self) -> int:
        """The most characters of a trace without token ids; 0 if there is none."""
        return int(self._one(codec.LONGEST_TEXT))

    # Writing

    def add_questions(self, questions: Iterable[Question]) -> None:
        """Add the new questions. A question that is already stored must be equal."""
        stored = {question.id: question for question in self.questions()}
        with self.at_once():
            for question in questions:
                if question.id not in stored:
                    row = (question.id, storable(question.text), question.gold, question.format)
                    self._db.execute("INSERT INTO questions (id, text, gold, format) VALUES (?, ?, ?, ?)", row)
                elif stored[question.id] != replace(question, text=storable(question.text)):
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

    def _forget_failure(self, key: Key, stage: str) -> None:
        where = (self._question_number(key[0]), key[1], stage)
        self._db.execute("DELETE FROM failures WHERE question = ? AND seed = ? AND stage = ?", where)

    def _recorded(self, trace: int, probing: int | None, whole: bool) -> RecordedTrace:
        row = next(iter(self._all(codec.select_trace(whole, self._version), trace)), ("?", "?"))  # its question is gone
        probes = self._all(codec.select_probes(whole, self._version), probing) if probing else []
        final = self._one("SELECT final FROM probings WHERE id = ?", probing) if probing else None
        with translate_damage(self.path, f"the trace of question {row[0]!r} with seed {row[1]}"):
            return codec.trace_of(row, self.config.budget, tuple(map(codec.probe_of, probes)), final, whole)

    def _question(self, question: str) -> tuple[int, Question]:
        (found,) = self._all("SELECT number, id, text, gold, format FROM questions WHERE id = ?", question)
        return int(found[0]), Question(*found[1:])

    def _question_number(self, question: str) -> int:
        return int(self._one("SELECT number FROM questions WHERE id = ?", question))

    def _trace_id(self, key: Key) -> int:
        found = self._all(codec.TRACE_ID, *key)
        if not found:
            raise NotRecorded(
                f"Question {key[0]!r} with seed {key[1]} is not in {self.folder}.", "Generate it with `cgr generate`."
            )
        return int(found[0][0])

    def _set_id(self, name: str) -> int:
        sets = dict(self._all("SELECT name, id FROM probe_sets"))
        if not sets:
            raise NotARun(f"The run in {self.folder} has no probes yet.", f"Make them with `cgr probe {self.folder}`.")
        if name not in sets:
            raise UnknownName.among("probe set", name, sets)
        return int(sets[name])

    def _one(self, sql: str, *values: Any) -> Any:
        with translate_errors(self.path):
            return self._db.execute(sql, values).fetchone()[0]

    def _all(self, sql: str, *values: Any) -> list[Any]:
        with translate_errors(self.path):
            return self._db.execute(sql, values).fetchall()

    def _insert(self, sql: str, row: Sequence[Any]) -> int:
        return cast(int, self._db.execute(sql, row).lastrowid)


__all__ = ["DEFAULT", "GENERATE", "Failure", "Key", "NotARun", "OtherConfiguration", "Store", "StoreError", "probing_stage"]
