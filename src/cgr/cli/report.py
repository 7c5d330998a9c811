"""`cgr report`: score runs; write tables, figures and a web page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cgr.cli.main import say, say_json
from cgr.cli.shared.options import JSON_OPTION, NUMBERS, PATH, PENALTIES, PROBES, ProbesCommand, check_installed, chosen

if TYPE_CHECKING:
    from cgr.lab.report import WrittenReport


@click.command("report", cls=ProbesCommand)
@click.argument("runs", nargs=-1, required=True, type=PATH)
@click.option("--out", type=PATH, help="Output folder.  [default: RUN/report]")
@click.option(
    "--thresholds", **NUMBERS, help="Certainties to stop at, separated by commas.  [default: 0.96,0.97,0.98,0.99]"
)
@click.option("--penalties", **PENALTIES)
@click.option(
    PROBES,
    "probe_set",
    metavar="NAME",
    help="Name of the probe set that the rule reads.  [default: the one made for it]",
)
@click.option("--rule", default="cgr", show_default=True, help="The rule to replay; see `cgr rules`.")
@JSON_OPTION
def command(runs: tuple[Path, ...], as_json: bool, **options: Any) -> None:
    """Score recorded RUNS and write tables, figures and a web page. Several runs are shown side by side.

    A run is a folder made by `cgr generate` or `cgr import`, or a .jsonl or .parquet file of traces.
    """
    check_installed("numpy", "matplotlib")
    from cgr.lab.report import write_report

    written = write_report(runs, **chosen(options))
    if as_json:
        say_json(written.to_dict())
    else:
        _show(written)


def _show(written: WrittenReport) -> None:
    from cgr.lab.report.tables import lines

    for report in written.reports:
        say("\n".join(lines(report)) + "\n")
    if written.page:
        say(str(written.page))
    else:
        say(f"{written.folder} (without a page: the page supports only the rule cgr)")
