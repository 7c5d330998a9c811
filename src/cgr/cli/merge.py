"""`cgr merge`: join runs of several processes or machines."""

from __future__ import annotations

from pathlib import Path

import click

from cgr.cli.main import say, say_json
from cgr.cli.shared.options import JSON_OPTION, PATH
from cgr.lab.store.merge import merge


@click.command("merge")
@click.argument("runs", nargs=-1, required=True, type=PATH)
@click.option("--out", type=PATH, required=True, help="Folder of the new run.")
@JSON_OPTION
def command(runs: tuple[Path, ...], out: Path, as_json: bool) -> int:
    """Join RUNS of the same configuration into a new run. With one run, this is a copy, also while that is written.

    A trace that several runs have is taken once if it is equal in them, and named as an error if not. Of shards (see
    `cgr generate --shard`) the missing ones are named, and the exit code is then 1.
    """
    made = merge(runs, out)
    if as_json:
        say_json(made.to_json())
        return int(bool(made.notes))
    were = "was" if made.repeated == 1 else "were"
    again = f" {made.repeated:,} of them {were} in more than one run." if made.repeated else ""
    joined = "1 run is" if made.runs == 1 else f"{made.runs} runs are"
    traces = "1 trace" if made.traces == 1 else f"{made.traces:,} traces"
    questions = "1 question" if made.questions == 1 else f"{made.questions:,} questions"
    say(f"{joined} in {out}: {traces} of {questions}.{again}")
    for note in made.notes:
        say(f"note:  {note}", err=True)
    return int(bool(made.notes))
