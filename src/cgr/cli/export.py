"""`cgr export`: a run as a file."""

from __future__ import annotations

from pathlib import Path

import click

from cgr.lab.exchange import FORMATS, FileFormat, export_run
from cgr.lab.store import Store


@click.command("export")
@click.argument("run", type=click.Path(path_type=Path))
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--format", "form", type=click.Choice(FORMATS), help="[default: by the file's name, else jsonl]")
@click.option("--set", "probe_set", help="Which probes.  [default: the run's default set]")
@click.option("--no-thinking", is_flag=True, help="Leave out the text and the tokens of the thinking.")
def command(run: Path, out: Path, form: FileFormat | None, probe_set: str | None, no_thinking: bool) -> None:
    """Write the traces of a RUN, with one set of probes, to the file OUT: one trace a line.

    docs/exchange.md has the schema.
    """
    count = export_run(run, out, form, probe_set=probe_set, thinking=not no_thinking)
    with Store.open(run) as store:
        left = len(store.made()) - count
    note = f" {left} more are not probed in this set, and were left out." if left else ""
    click.echo(f"{count} traces of {run} are in {out}.{note}")
