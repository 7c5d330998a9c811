"""The end of `cgr generate` and `cgr probe`: done, with failures, or interrupted; as text or as JSON."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from cgr.cli.main import say, say_json
from cgr.engines.open import ModelOptions
from cgr.lab.record.jobs import Progress, Summary, failure_lines, summarise, summary_lines
from cgr.lab.store import Key
from cgr.lab.store.schema import FILE

EMBEDDED_SESSIONS, SESSIONS_PER_SERVER = 8, 16
INTERRUPTED = 130  # exit code after Ctrl-C


def sessions_for(given: int | None, model: ModelOptions) -> int:
    """The number of traces in flight: the given one, or 8 for the embedded model, 16 per server, and 1 otherwise, because
    a large model in this process may not have the memory for more."""
    if given is not None:
        return given
    return EMBEDDED_SESSIONS if model.embedded else SESSIONS_PER_SERVER * len(model.addresses) or 1


def finish(work: Callable[..., Any], folder: Path, wanted: Collection[Key] | None, quiet: bool, as_json: bool) -> int:
    """Do the work, print a summary, and return the exit code. Failures are printed even if `quiet`."""
    progress, interrupted = Progress(quiet=quiet or as_json), False
    try:
        work(progress=progress)
    except KeyboardInterrupt:
        interrupted = True
        if not (folder / FILE).is_file():
            return nothing_recorded()
    summary = summarise(folder, wanted, progress, interrupted=interrupted)
    if as_json:
        say_json(summary.to_json())
    else:
        print_summary(summary, quiet=quiet and not interrupted)
    return INTERRUPTED if interrupted else 1 if summary.failed else 0


def nothing_recorded() -> int:
    """Say that the run was interrupted before its first trace; return the exit code."""
    say("Interrupted before anything was recorded.", err=True)
    return INTERRUPTED


def print_summary(summary: Summary, *, quiet: bool = False) -> None:
    """Print what a run has and what failed. Failures, and all of an interrupted run, go to standard error."""
    for line in [] if quiet else summary_lines(summary):
        say(line, err=summary.interrupted)
    for line in failure_lines(summary.failures):
        say(line, err=True)
