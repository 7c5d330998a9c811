"""`cgr import`: create a run from a file."""

from __future__ import annotations

from pathlib import Path

import click

from cgr.cli.main import say
from cgr.cli.shared.arguments import PATH
from cgr.lab.exchange import FORMATS, FileFormat, import_run


@click.command("import")
@click.argument("file", type=PATH)
@click.argument("run", type=PATH)
@click.option("--format", "form", type=click.Choice(FORMATS), help="[default: from the name of FILE, or jsonl]")
def command(file: Path, run: Path, form: FileFormat | None) -> None:
    """Create the RUN from a FILE of traces and probes that were recorded by another program.

    docs/exchange.md describes the format. If the file has an error, nothing is imported and the line is named.
    """
    imported = import_run(file, run, form)
    interval = f", every {imported.interval} tokens" if imported.interval and imported.probes else ""
    counts = f"{imported.traces} traces of {imported.questions} questions"
    say(f"{counts} are in {run}, with {imported.probes} probes{interval}.")
