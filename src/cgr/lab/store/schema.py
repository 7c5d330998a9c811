"""The SQLite file of a run: its tables, how it is opened and locked, and clear messages for SQLite's errors."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote

from cgr.errors import CgrError, UsageError
from cgr.lab.store import checks

FILE = "run.sqlite"
LOCK = "run.lock"
FORCED = "forced"
BUSY_TIMEOUT = 5.0  # seconds to wait for the transaction of another process
APPLICATION = 0x63677231  # "cgr1"
VERSION = 6
CONTINUES = "Then repeat the command: it continues where it stopped."
ADDED_COLUMNS = (  # since version 1: the version, the table, and the column
    (2, "traces", "tops BLOB NOT NULL DEFAULT x''"),
    (2, "traces", "forced TEXT NOT NULL DEFAULT '[]'"),
    (3, "traces", "question_text TEXT"),
    (3, "traces", "gold TEXT"),
    (4, "probes", "options TEXT NOT NULL DEFAULT '[]'"),
    (5, "probes", "stated TEXT NOT NULL DEFAULT ''"),
)
TABLES = (
    """CREATE TABLE run (
        config TEXT NOT NULL, version TEXT NOT NULL, created TEXT NOT NULL
    )""",
    """CREATE TABLE questions (
        number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, text TEXT NOT NULL, gold TEXT, format TEXT NOT NULL
    )""",
    """CREATE TABLE traces (
        id INTEGER PRIMARY KEY, question INTEGER NOT NULL REFERENCES questions(number), seed INTEGER NOT NULL,
        tokens INTEGER NOT NULL, ended TEXT NOT NULL, eos INTEGER NOT NULL, seconds REAL NOT NULL, final TEXT NOT NULL,
        written TEXT NOT NULL, text TEXT NOT NULL, prompt_ids BLOB NOT NULL, ids BLOB NOT NULL, logprobs BLOB NOT NULL,
        tops BLOB NOT NULL DEFAULT x'', forced TEXT NOT NULL DEFAULT '[]', question_text TEXT, gold TEXT,
        UNIQUE (question, seed)
    )""",
    """CREATE TABLE probe_sets (
        id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, spec TEXT NOT NULL
    )""",
    """CREATE TABLE probings (
        id INTEGER PRIMARY KEY, probe_set INTEGER NOT NULL REFERENCES probe_sets(id),
        trace INTEGER NOT NULL REFERENCES traces(id), final TEXT, UNIQUE (probe_set, trace)
    )""",
    """CREATE TABLE probes (
        probing INTEGER NOT NULL REFERENCES probings(id), at INTEGER NOT NULL, answer TEXT NOT NULL,
        certainty REAL NOT NULL, closed INTEGER NOT NULL, bound INTEGER NOT NULL, probabilities TEXT NOT NULL,
        suffix TEXT NOT NULL, suffix_ids TEXT NOT NULL, entropy REAL, prefilled INTEGER NOT NULL, cached INTEGER NOT NULL,
        decoded INTEGER NOT NULL, seconds REAL NOT NULL, tokens TEXT NOT NULL,
        options TEXT NOT NULL DEFAULT '[]', stated TEXT NOT NULL DEFAULT '', PRIMARY KEY (probing, at)
    )""",
    """CREATE TABLE failures (
        question INTEGER NOT NULL REFERENCES questions(number), seed INTEGER NOT NULL, stage TEXT NOT NULL,
        message TEXT NOT NULL, hint TEXT NOT NULL, PRIMARY KEY (question, seed, stage)
    )""",
    checks.TABLE,
)


class NotARun(UsageError):
    """There is no run here, or it cannot be read."""


class EmptyFile(NotARun):
    """There is a file, but no run in it yet: the command that created it was killed at its very beginning."""


class StoreError(CgrError):
    """The file of a run cannot be used: another process writes it, the disk is full, or the file is damaged."""


@contextmanager
def translate_errors(path: Path) -> Iterator[None]:
    """Raise SQLite's errors as errors of this package."""
    try:
        yield
    except sqlite3.Error as error:
        raise _translated(error, path) from error
    except OverflowError as error:
        raise UsageError(f"{path} cannot hold a number of this size.", "Whole numbers have at most 63 bits.") from error


@contextmanager
def translate_damage(path: Path, what: str) -> Iterator[None]:
    """Raise an error of this package for a stored value that cannot be read."""
    try:
        yield
    except (ValueError, TypeError, KeyError, AttributeError, IndexError, OverflowError, RecursionError) as error:
        message = f"{path} is damaged: {what} cannot be read ({error})."
        raise NotARun(message, "Restore a backup, or make the run again in another folder.") from error


def _translated(error: sqlite3.Error, path: Path) -> CgrError:
    match getattr(error, "sqlite_errorcode", 0) & 0xFF:
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return StoreError(f"Another process is writing {path}.", "Wait until it has finished, then repeat the command.")
        case sqlite3.SQLITE_FULL:
            return StoreError(f"The disk is full: {path} cannot grow.", f"Free some space. {CONTINUES}")
        case sqlite3.SQLITE_IOERR:
            return StoreError(f"The disk of {path} failed: {error}.", f"Check the disk. {CONTINUES}")
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_PERM:
            return StoreError(f"{path} cannot be opened: {error}.", "Check the permissions of the folder.")
        case sqlite3.SQLITE_NOTADB:
            return NotARun(f"{path} is not a run.", "Give a folder made by `cgr generate --out`.")
        case sqlite3.SQLITE_CORRUPT:
            return StoreError(f"{path} is damaged: {error}.", "Restore a backup, or make the run again in another folder.")
    return StoreError(f"{path} cannot be used: {error}.", "Check that it is the file of a run, made by this version.")


def folder_of(path: Path) -> Path:
    """The folder of a run, given that folder or the run's file."""
    if path.name == FILE:
        return path.parent
    if path.is_file():
        raise NotARun(f"{path} is a file, but a run is a folder.", "Give a folder made by `cgr generate --out`.")
    return path


def no_run(folder: Path) -> NotARun:
    """The error for a folder without a run."""
    below = sorted(file.parent for file in folder.glob(f"*/{FILE}"))
    hint = "Make one with `cgr generate` or `cgr import`."
    if below:
        hint = f"There are runs below it, such as {below[0]}. To join them: cgr merge {folder}/* --out RUN."
    return NotARun(f"There is no run in {folder}.", hint)


def forced_run(run: Path) -> Path:
    """The folder of the forced run that a recipe records beside a natural one."""
    return run / FORCED


def lock_writer(folder: Path) -> sqlite3.Connection:
    """The writer's lock of a run, held while the connection is open. The system releases it when the process ends."""
    with translate_errors(folder):
        # nothing is ever written to it: without a journal, a process that is killed leaves no second file
        begin = ("PRAGMA journal_mode=OFF", "BEGIN EXCLUSIVE")
        return _prepared(sqlite3.connect(folder / LOCK, timeout=0, isolation_level=None), *begin)


def is_being_written(folder: Path) -> bool:
    """Whether a process holds the writer's lock of this run."""
    file = folder_of(folder) / LOCK
    if not file.is_file():
        return False
    connection = sqlite3.connect(f"file:{quote(str(file.resolve()))}?mode=ro", uri=True, timeout=0)
    try:
        connection.execute("SELECT count(*) FROM sqlite_master")
    except sqlite3.OperationalError as error:
        return getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY
    finally:
        connection.close()
    return False


def connect(file: Path, *, create: bool = False, write: bool = False) -> sqlite3.Connection:
    """A connection in autocommit mode: each statement is a transaction unless one is begun."""
    uri = f"file:{quote(str(file.resolve()))}?mode={'rwc' if create else 'rw'}"
    writing = ("PRAGMA journal_mode=WAL", "PRAGMA synchronous=NORMAL") if write else ()
    with translate_errors(file):
        connection = sqlite3.connect(uri, uri=True, timeout=BUSY_TIMEOUT, isolation_level=None)
        return _prepared(connection, *writing, "PRAGMA foreign_keys=ON")


def _prepared(connection: sqlite3.Connection, *statements: str) -> sqlite3.Connection:
    """The connection after these statements; it is closed if one fails."""
    try:
        for statement in statements:
            connection.execute(statement)
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def _is_empty(db: sqlite3.Connection) -> bool:
    return not db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]


def write_schema(db: sqlite3.Connection, config: str, version: str) -> None:
    """Create every table in one transaction: a file has all of them, or none if the process was killed here. A file that
    has them is left as it is."""
    if not _is_empty(db):
        return
    db.execute("BEGIN IMMEDIATE")
    for table in TABLES:
        db.execute(table)
    db.execute(f"PRAGMA application_id={APPLICATION}")
    db.execute(f"PRAGMA user_version={VERSION}")
    db.execute("INSERT INTO run VALUES (?, ?, ?)", (config, version, datetime.now(UTC).isoformat(timespec="seconds")))
    checks.Checks(db, VERSION).add_run()
    db.execute("COMMIT")


def check_schema(db: sqlite3.Connection, file: Path, *, write: bool = False) -> int:
    """The schema version of the file. An older file can be read; it is upgraded before it is written."""
    (application,) = db.execute("PRAGMA application_id").fetchone()
    (version,) = db.execute("PRAGMA user_version").fetchone()
    if not application and _is_empty(db):
        raise EmptyFile(no_run(file.parent).message, "Make one with `cgr generate` or `cgr import`.")
    if application != APPLICATION:
        raise NotARun(f"{file} is a database, but not a run.", "Give a folder made by `cgr generate --out`.")
    if not 1 <= version <= VERSION:
        raise NotARun(
            f"{file} has schema {version}, but this version reads up to {VERSION}.", "Use the version of cgr that made it."
        )
    if write and version < VERSION:
        _upgrade(db, version)
        return VERSION
    return int(version)


def _upgrade(db: sqlite3.Connection, version: int) -> None:
    db.execute("BEGIN IMMEDIATE")
    for since, table, column in ADDED_COLUMNS:
        if since > version:
            db.execute(f"ALTER TABLE {table} ADD COLUMN {column}")
    if version < checks.SINCE:
        db.execute(checks.TABLE)
        checks.write_all(db)
    db.execute(f"PRAGMA user_version={VERSION}")
    db.execute("COMMIT")
