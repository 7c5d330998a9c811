"""`cgr open`: show the page of a run in a browser."""

from __future__ import annotations

import webbrowser
from pathlib import Path

import click

from cgr.cli.main import say
from cgr.cli.shared.options import PATH, check_installed
from cgr.errors import UsageError
from cgr.lab.store.schema import FILE


@click.command("open")
@click.argument("run", type=PATH)
@click.option("--print", "only_print", is_flag=True, help="Print the link and open no browser.")
def command(run: Path, only_print: bool) -> None:
    """Open the web page of a RUN in a browser, and print its link. A page that is missing is made, as by `cgr report`.

    A RUN is a folder made by `cgr generate` or `cgr import`, or a .jsonl or .parquet file of traces.
    """
    page = _page(run)
    link = page.resolve().as_uri()
    say(link)
    if not only_print and not webbrowser.open(link):
        say("note:  No browser could be started: open the link in one.", err=True)


def _page(run: Path) -> Path:
    """The page of a run, made if it is missing."""
    folder = run.parent if run.name == FILE else run
    report = folder / "report" if folder.is_dir() else folder.with_name(f"{folder.stem}-report")
    page, recorded = report / "index.html", folder / FILE if folder.is_dir() else folder
    if page.is_file():
        if recorded.is_file() and recorded.stat().st_mtime > page.stat().st_mtime:
            say(f"note:  The run has changed since the page was made. To make it again: cgr report {run}", err=True)
        return page
    check_installed("numpy", "matplotlib")
    from cgr.lab.report import write_report

    made = write_report([folder]).page
    if made is None:
        raise UsageError(f"There is no page of {run}.", "Make it with `cgr report`.")
    return made
