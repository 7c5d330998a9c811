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
@click.option("--thresholds", help="Sure enough to stop, with commas.  [default: 0.96,0.97,0.98,0.99]")
@click.option("--penalties", help="What a wrong answer costs in Grade, with commas.  [default: 0,0.25,0.5,1]")
@click.option("--set", "probe_set", help="The probes to read.  [default: default, or the run's first]")
@click.option("--rule", default="cgr", show_default=True, help="The rule to replay; see `cgr rules`.")
@click.option("--json", "as_json", is_flag=True, help="Print report.json and nothing else.")
def command(
    runs: tuple[Path, ...],
    out: Path | None,
    thresholds: str | None,
    penalties: str | None,
    probe_set: str | None,
    rule: str,
    as_json: bool,
) -> None:
    """Score recorded RUNS and write tables, figures and a page; several runs are set side by side.

    A run is the folder that `cgr generate` made, or a .jsonl file of traces.
    """
    check_installed("numpy", "matplotlib")
    from cgr.lab.report import write_report

    given = {"thresholds": numbers_in(thresholds), "penalties": numbers_in(penalties)}
    chosen = {name: values for name, values in given.items() if values is not None}
    written = write_report(runs, out, probe_set=probe_set, rule=rule, **chosen)
    if as_json:
        click.echo(json.dumps(written.to_dict(), ensure_ascii=False))
    else:
        _show(written)


def numbers_in(text: str | None) -> tuple[float, ...] | None:
    """`0.96,0.99` or `0.96 0.99`; None if nothing was said."""
    if text is None:
        return None
    try:
        return tuple(float(part) for part in text.replace(",", " ").split())
    except ValueError as error:
        raise UsageError(f"{text!r} is not a list of numbers.", "Write them with commas: 0.5,0.99.") from error


def check_installed(*packages: str) -> None:
    for package in packages:
        if importlib.util.find_spec(package) is None:
            raise UsageError(f"The report needs {package}.", "pip install 'certainty-guided-reasoning[lab]'")


def _show(written: WrittenReport) -> None:
    from cgr.lab.report.terminal import lines

    for report in written.reports:
        click.echo("\n".join(lines(report)) + "\n")
    if written.page:
        click.echo(str(written.page))
    else:
        click.echo(f"{written.folder} (without a page: a browser can recompute the rule cgr only)")
