"""The file of a run: its tables, how it is opened and locked, and what SQLite's complaints mean in words."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote

from cgr.errors import CgrError, UsageError

FILE = "run.sqlite"
FORCED = "forced"
LOCK = "run.lock"
PATIENCE = 5.0  # seconds that one waits for another's transaction
APPLICATION = 0x63677231  # "cgr1"
VERSION = 2
ADDED = (  # to the traces, since version 1
    "tops BLOB NOT NULL DEFAULT x''",
    "forced TEXT NOT NULL DEFAULT '[]'",
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
        tops BLOB NOT NULL DEFAULT x'', forced TEXT NOT NULL DEFAULT '[]', UNIQUE (question, seed)
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
        decoded INTEGER NOT NULL, seconds REAL NOT NULL, tokens TEXT NOT NULL, PRIMARY KEY (probing, at)
    )""",
    """CREATE TABLE failures (
        question INTEGER NOT NULL REFERENCES questions(number), seed INTEGER NOT NULL, stage TEXT NOT NULL,
        message TEXT NOT NULL, hint TEXT NOT NULL, PRIMARY KEY (question, seed, stage)
    )""",
)


class NotARun(UsageError):
    """There is no run here, or not one that can be read."""


class StoreError(CgrError):
    """The file of a run cannot be used: somebody else writes it, or the disk is full, or it is broken."""


@contextmanager
def plainly(path: Path) -> Iterator[None]:
    """What SQLite says, in words."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        raise _explained(error, path) from error


def _explained(error: sqlite3.Error, path: Path) -> CgrError:
    match getattr(error, "sqlite_errorcode", 0) & 0xFF:
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return StoreError(f"Somebody else is writing {path}.", "Wait for them to finish, then give the same command.")
        case sqlite3.SQLITE_FULL:
            return StoreError(f"The disk is full: {path} cannot grow.", "Make room; the same command goes on from here.")
        case sqlite3.SQLITE_IOERR:
            return StoreError(f"The disk fails under {path}: {error}.", "See to it; the same command goes on from here.")
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_PERM:
            return StoreError(f"{path} cannot be opened for this: {error}.", "Is the folder yours to write in?")
        case sqlite3.SQLITE_NOTADB:
            return NotARun(f"{path} is not the file of a run.", "Give the folder that `cgr generate --out` made.")
        case sqlite3.SQLITE_CORRUPT:
            return StoreError(f"{path} is damaged: {error}.", "Take it from a backup, or make the run again elsewhere.")
    return StoreError(f"{path} cannot be used: {error}.", "Is it the file of a run, and of this version?")


def folder_of(path: Path) -> Path:
    """The run's folder, whether that or its file is named."""
    if path.name == FILE:
        return path.parent
    if path.is_file():
        raise NotARun(f"{path} is a file, and a run is a folder.", "Give the folder that `cgr generate --out` made.")
    return path


def forced_run(run: Path) -> Path:
    """The folder of the forced run that a recipe records beside a natural one."""
    return run / FORCED


def make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{folder} cannot be made: {error.strerror}.", "Choose another place for the run.") from error


def lock_writer(folder: Path) -> sqlite3.Connection:
    """One writer a run, for as long as this is open. The lock is the system's: it goes with the process, come what may."""
    with plainly(folder):
        lock = sqlite3.connect(folder / LOCK, timeout=0, isolation_level=None)
        try:
            lock.execute("BEGIN EXCLUSIVE")
        except sqlite3.Error:
            lock.close()
            raise
    return lock


def connect(file: Path, *, create: bool = False, write: bool = False) -> sqlite3.Connection:
    """A connection on which every statement is its own transaction unless one is begun."""
    with plainly(file):
        mode = "rwc" if create else "rw"
        uri = f"file:{quote(str(file.resolve()))}?mode={mode}"
        connection = sqlite3.connect(uri, uri=True, timeout=PATIENCE, isolation_level=None)
        try:
            if write:
                connection.execute("PRAGMA journal_mode=WAL")
                connection.execute("PRAGMA synchronous=NORMAL")
            connection.execute("PRAGMA foreign_keys=ON")
        except sqlite3.Error:
            connection.close()
            raise
    return connection


def write_schema(db: sqlite3.Connection, config: str, version: str) -> None:
    """Every table at once: a file has all of them or none."""
    db.execute("BEGIN IMMEDIATE")
    for table in TABLES:
        db.execute(table)
    db.execute(f"PRAGMA application_id={APPLICATION}")
    db.execute(f"PRAGMA user_version={VERSION}")
    db.execute("INSERT INTO run VALUES (?, ?, ?)", (config, version, datetime.now(UTC).isoformat(timespec="seconds")))
    db.execute("COMMIT")


def is_empty(db: sqlite3.Connection) -> bool:
    """As a run is that was killed while it was made."""
    return not db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]


def check_schema(db: sqlite3.Connection, file: Path, *, write: bool = False) -> int:
    """The version of the file. An older one can be read as it is, and is brought up to date before it is written."""
    (application,) = db.execute("PRAGMA application_id").fetchone()
    (version,) = db.execute("PRAGMA user_version").fetchone()
    if application != APPLICATION:
        raise NotARun(f"{file} is a database, but not of a run.", "Give the folder that `cgr generate --out` made.")
    if not 1 <= version <= VERSION:
        raise NotARun(
            f"{file} has schema {version}, and this is for {VERSION}.", "Use the cgr that made it, or make it anew."
        )
    if write and version < VERSION:
        _bring_up_to_date(db)
        return VERSION
    return int(version)


def _bring_up_to_date(db: sqlite3.Connection) -> None:
    db.execute("BEGIN IMMEDIATE")
    for column in ADDED:
        db.execute(f"ALTER TABLE traces ADD COLUMN {column}")
    db.execute(f"PRAGMA user_version={VERSION}")
    db.execute("COMMIT")
