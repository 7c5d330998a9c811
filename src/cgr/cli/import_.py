"""`cgr import`: a file as a run."""

from __future__ import annotations

from pathlib import Path

import click

from cgr.lab.exchange import FORMATS, FileFormat, import_run


@click.command("import")
@click.argument("file", type=click.Path(path_type=Path))
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--format", "form", type=click.Choice(FORMATS), help="[default: by the file's name, else jsonl]")
def command(file: Path, run: Path, form: FileFormat | None) -> None:
    """Make a RUN of a FILE of traces and probes that were recorded elsewhere, so that they can be scored here.

    docs/exchange.md has the schema. A file with a mistake in it is refused as a whole, with the line of the mistake.
    """
    came = import_run(file, run, form)
    grid = f", every {came.interval} tokens" if came.interval and came.probes else ""
    click.echo(f"{came.traces} traces of {came.questions} questions are in {run}, with {came.probes} probes{grid}.")
