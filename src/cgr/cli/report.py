"""`cgr report`: a run as tables, figures and a page."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cgr.errors import UsageError

if TYPE_CHECKING:
    from cgr.lab.report import WrittenReport


@click.command("report")
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), help="Where to write.  [default: RUN/report]")
@click.option("--thresholds", default="0.96,0.97,0.98,0.99", show_default=True, help="Sure enough to stop.")
@click.option("--penalties", default="0,0.25,0.5,1", show_default=True, help="What a wrong answer costs in Grade.")
@click.option("--set", "probe_set", help="The probes to read.  [default: default, or the run's first]")
@click.option("--rule", default="cgr", show_default=True, help="The rule to replay; see `cgr rules`.")
@click.option("--json", "as_json", is_flag=True, help="Print report.json and nothing else.")
def command(
    runs: tuple[Path, ...],
    out: Path | None,
    thresholds: str,
    penalties: str,
    probe_set: str | None,
    rule: str,
    as_json: bool,
) -> None:
    """Score recorded RUNS and write tables, figures and a page; several runs are set side by side.

    A run is the folder that `cgr generate` made, or a .jsonl file of traces.
    """
    check_installed("numpy", "matplotlib")
    from cgr.lab.report import write_report

    written = write_report(
        runs,
        out,
        thresholds=numbers_in("threshold", thresholds),
        penalties=numbers_in("penalty", penalties),
        probe_set=probe_set,
        rule=rule,
    )
    if as_json:
        click.echo(json.dumps(written.to_dict(), ensure_ascii=False))
    else:
        _show(written)


def numbers_in(what: str, text: str) -> tuple[float, ...]:
    """`0.96,0.99` or `0.96 0.99`."""
    try:
        return tuple(float(part) for part in text.replace(",", " ").split())
    except ValueError as error:
        raise UsageError(f"{text!r} is not a list of numbers.", f"Write each {what} with commas: 0.5,0.99.") from error


def check_installed(*packages: str) -> None:
    for package in packages:
        if importlib.util.find_spec(package) is None:
            raise UsageError(f"The report needs {package}.", "pip install 'certainty-guided-reasoning[lab]'")


def _show(written: WrittenReport) -> None:
    from cgr.lab.report.summary import lines

    for report in written.reports:
        click.echo("\n".join(lines(report)) + "\n")
    if written.page:
        click.echo(str(written.page))
    else:
        click.echo(f"{written.folder} (without a page: a browser can recompute the rule cgr only)")
