"""`cgr runs`: list the runs in a folder."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cgr.cli.main import say, say_json
from cgr.cli.shared.options import JSON_OPTION, PATH
from cgr.records import visible_line

if TYPE_CHECKING:
    from cgr.lab.store.listing import ListedRun

RUNS = Path("runs")
HEADS = ("Run", "Questions", "Seeds", "Traces", "Failed", "Model", "Probe sets", "State", "Size", "Changed")
NUMBERS = ("Questions", "Seeds", "Traces", "Failed", "Size")
WIDE = 200  # columns where there is no terminal


@click.command("runs")
@click.argument("folder", type=PATH, required=False)
@JSON_OPTION
def command(folder: Path | None, as_json: bool) -> None:
    """List the runs in FOLDER (by default runs, or the working folder), the one that was changed last first.

    The state of a run is `complete`, or says what is missing. `cgr open RUN` shows the page of a run.
    """
    from cgr.lab.store.listing import list_runs

    place = folder or (RUNS if RUNS.is_dir() else Path())
    runs = list_runs(place)
    if as_json:
        say_json({"folder": str(place), "runs": [one.to_dict() for one in runs]})
    elif runs:
        _show(runs)
    else:
        say(f"There are no runs in {place}. Make one: cgr demo, or cgr generate.")


def _show(runs: Sequence[ListedRun]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = WIDE
    table = Table(box=None, pad_edge=False)
    for head in HEADS:
        table.add_column(head, justify="right" if head in NUMBERS else "left", overflow="fold")
    for one in runs:
        table.add_row(*map(visible_line, _cells(one)))
    console.print(table)
    for one in runs:
        if one.problem:
            console.print(visible_line(f"{one.name}: {one.problem}"), soft_wrap=True)


def _cells(run: ListedRun) -> tuple[str, ...]:
    counts = [f"{value:,}" for value in (run.questions, run.seeds, run.traces, run.failed)]
    sets = ", ".join(name if count == run.traces else f"{name} ({count:,})" for name, count in run.probe_sets)
    changed = datetime.fromisoformat(run.changed).astimezone().strftime("%Y-%m-%d %H:%M")
    return run.name, *counts, run.model, sets, run.state, _size(run.size), changed


def _size(count: float) -> str:
    for unit in ("B", "KB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" or count >= 10 else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:,.1f} GB"
