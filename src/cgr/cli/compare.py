"""`cgr compare`: every rule on the same traces."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cgr.cli.report import check_installed, numbers_in

if TYPE_CHECKING:
    from rich.console import Console

    from cgr.lab.compare import WrittenComparison
    from cgr.lab.compare.result import Compared


@click.command("compare")
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--rules", help="Rules, or files of `cgr fit`, with commas.  [default: all]")
@click.option("--penalties", "--penalty", help="What a wrong answer costs in Grade, with commas.  [default: 0,0.25,0.5,1]")
@click.option(
    "--tune-on", type=float, help="The share of the questions that chooses parameters; 0: all are shown.  [default: 0.5]"
)
@click.option("--out", type=click.Path(path_type=Path), help="Where to write.  [default: RUN/compare]")
@click.option("--quiet", is_flag=True, help="Write the files and print nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print compare.json and nothing else.")
def command(
    runs: tuple[Path, ...],
    rules: str | None,
    penalties: str | None,
    tune_on: float | None,
    out: Path | None,
    quiet: bool,
    as_json: bool,
) -> None:
    """Compare the stopping rules on the recorded traces of RUNS: what each saves, what that costs, and which does best.

    Every rule is replayed over the values of its main parameter. Values are chosen on one half of the questions and judged
    on the other. docs/compare.md says what each number means.
    """
    check_installed("numpy", "matplotlib")
    from cgr.lab.compare import TUNE_ON, write_comparison
    from cgr.lab.score.accuracy import PENALTIES

    names = None if rules is None else rules.replace(",", " ").split()
    costs, share = numbers_in(penalties), TUNE_ON if tune_on is None else tune_on
    written = write_comparison(runs, out, names, PENALTIES if costs is None else costs, tune_on=share)
    if as_json:
        click.echo(json.dumps(written.to_dict(), ensure_ascii=False))
    elif not quiet:
        _show(written)


def _show(written: WrittenComparison) -> None:
    from rich.console import Console

    console = Console(highlight=False, markup=False, soft_wrap=True)
    for compared in written.comparisons:
        _show_one(compared, console)
    console.print(str(written.folder))


def _show_one(compared: Compared, console: Console) -> None:
    from cgr.lab.compare import tables

    run = compared.run
    seeds = "1 seed" if compared.seeds == 1 else f"{compared.seeds} seeds"
    console.print(f"{run.name}: {run.model}, {compared.questions} questions × {seeds}", style="bold")
    console.print(tables.how_chosen(compared) + "\n", style="dim")
    head, *rows = tables.table_lines(compared)
    console.print(head, style="dim")
    for row in rows:
        console.print(row)
    console.print("")
    for sentence in tables.sentences(compared):
        console.print(sentence)
    for note in compared.notes:
        console.print(f"Note: {note}", style="yellow")
    if compared.missing:
        console.print("\nNot compared:", style="dim")
    for why, hint in tables.reasons(compared.missing):
        console.print(f"  {why} {hint}", style="dim")
    console.print("")
