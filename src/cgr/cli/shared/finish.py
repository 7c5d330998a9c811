"""How `cgr generate` and `cgr probe` end: done, with failures, or interrupted; for a person or as JSON."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import click

from cgr.engines.open import ModelOptions
from cgr.lab.record.jobs import Progress, Summary, failure_lines, summarise, summary_lines
from cgr.lab.store import Key
from cgr.lab.store.schema import FILE

MANY, ON_SERVERS = 8, 16


def sessions_for(asked: int | None, given: ModelOptions) -> int:
    """Traces in flight: many for the small embedded model, more on servers; a large model here may not have the memory for
    more than is said."""
    if asked is not None:
        return asked
    return MANY if given.embedded else ON_SERVERS * len(given.addresses) or 1


def finish(
    work: Callable[[], Any], folder: Path, wanted: Collection[Key] | None, progress: Progress, quiet: bool, as_json: bool
) -> int:
    """Do the work and say what came of it. Failures are said even when quiet."""
    interrupted = False
    try:
        work()
    except KeyboardInterrupt:
        interrupted = True
        if not (folder / FILE).is_file():
            click.echo("Interrupted before anything was recorded.", err=True)
            return 130
    summary = summarise(folder, wanted, progress, interrupted=interrupted)
    _show(summary, quiet, as_json)
    return 130 if interrupted else 1 if summary.failed else 0


def _show(summary: Summary, quiet: bool, as_json: bool) -> None:
    if as_json:
        click.echo(summary.to_json())
        return
    for line in [] if quiet and not summary.interrupted else summary_lines(summary):
        click.echo(line, err=summary.interrupted)
    for line in failure_lines(summary.failures):
        click.echo(line, err=True)
