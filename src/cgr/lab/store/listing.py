"""Lists the runs in a folder: what each holds, and whether it is complete."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cgr.errors import CgrError, UsageError
from cgr.lab.store import Store
from cgr.lab.store.recorded import is_shadow
from cgr.lab.store.schema import FILE, EmptyFile, folder_of, is_being_written
from cgr.records import Record

DEPTH = 3  # folders below the listed one that are searched


@dataclass(frozen=True, slots=True)
class ListedRun(Record):
    """One run. `failed`: traces that could not be made or probed. `probe_sets`: by name, how many traces each has.

    `state`: `complete`, `running`, `empty`, `incomplete` (some question lacks a seed that another has), `not probed`,
    `partly probed`, `failures`, or `unreadable`; `problem` then says why.
    """

    path: str
    name: str
    state: str
    questions: int = 0
    seeds: int = 0
    traces: int = 0
    failed: int = 0
    model: str = ""
    budget: int = 0
    probe_sets: tuple[tuple[str, int], ...] = ()
    page: bool = False
    size: int = 0
    changed: str = ""
    problem: str = ""


def holds_traces(path: Path) -> bool:
    """Whether a run with traces is in this folder. A command that was killed early leaves a file without any, or an empty
    one; both can be filled."""
    if not (folder_of(path) / FILE).is_file():
        return False
    try:
        with Store.open(path) as store:
            return bool(store.made())
    except EmptyFile:
        return False


def list_runs(folder: Path) -> tuple[ListedRun, ...]:
    """The runs in this folder and up to three folders below it, the one that was changed last first."""
    if not folder.is_dir():
        raise UsageError(f"There is no folder {str(folder)!r}.", "Give the folder that holds your runs, such as runs.")
    found = (_listed(file.parent, folder) for depth in range(DEPTH + 1) for file in folder.glob("*/" * depth + FILE))
    return tuple(sorted(found, key=lambda run: run.changed, reverse=True))


def _listed(run: Path, folder: Path) -> ListedRun:
    status = (run / FILE).stat()
    changed = datetime.fromtimestamp(status.st_mtime, UTC).isoformat(timespec="seconds")
    name = run.resolve().name if run == folder else str(run.relative_to(folder))
    known: dict[str, Any] = {"path": str(run), "name": name, "size": status.st_size, "changed": changed}
    try:
        with Store.open(run) as store:
            return _described(store, **known)
    except CgrError as error:
        return ListedRun(state="unreadable", problem=error.message, **known)


def _described(store: Store, **known: Any) -> ListedRun:
    made, failures = store.made(), store.failures()
    sets = tuple((name, len(store.probed(name))) for name in store.probe_sets())
    questions, seeds = len(store.questions()), len({seed for _, seed in made})
    failed = {(one.question_id, one.seed) for one in failures}
    states = {
        "running": is_being_written(store.folder),
        "empty": not made,
        "failures": bool(failed),
        "incomplete": len(made) < questions * seeds and not is_shadow(store.config.source),
        "not probed": not sets,
        "partly probed": any(count < len(made) for _, count in sets),
    }
    return ListedRun(
        state=next((name for name, holds in states.items() if holds), "complete"),
        questions=questions,
        seeds=seeds,
        traces=len(made),
        failed=len(failed),
        model=store.config.model,
        budget=store.config.budget,
        probe_sets=sets,
        page=(store.folder / "report" / "index.html").is_file(),
        **known,
    )
