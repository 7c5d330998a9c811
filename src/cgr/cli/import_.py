"""`cgr import`: create a run from a file."""

from __future__ import annotations

from pathlib import Path

import click

from cgr.cli.main import say
from cgr.cli.shared.options import PATH
from cgr.lab.exchange import FORMATS, FileFormat, import_run


@click.command("import")
@click.argument("file", type=PATH)
@click.argument("run", type=PATH)
@click.option("--format", "form", type=click.Choice(FORMATS), help="Format of FILE.  [default: from its name, or jsonl]")
def command(file: Path, run: Path, form: FileFormat | None) -> None:
    """Create the RUN from a FILE of traces and probes that were recorded by another program.

    docs/exchange.md describes the format. If the file has an error, nothing is imported and the line is named.
    """
    imported = import_run(file, run, form)
    interval = f", every {imported.interval} tokens" if imported.interval and imported.probes else ""
    counts = f"{_count(imported.traces, 'trace')} of {_count(imported.questions, 'question')}"
    say(f"{counts} {'is' if imported.traces == 1 else 'are'} in {run}, with {_count(imported.probes, 'probe')}{interval}.")
    if not imported.probes:
        say(f"Next: cgr probe {run} --model M")


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"
