"""`cgr compare`: every rule on the same traces."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cgr.cli.main import say_json
from cgr.cli.shared.options import JSON_OPTION, NAMES, PATH, PENALTIES, check_installed, chosen
from cgr.records import visible

if TYPE_CHECKING:
    from rich.console import Console

    from cgr.lab.compare import WrittenComparison
    from cgr.lab.compare.result import Compared


@click.command("compare")
@click.argument("runs", nargs=-1, required=True, type=PATH)
@click.option("--rules", **NAMES, help="Rules, or rule files of `cgr fit`, separated by commas.  [default: all rules]")
@click.option("--penalties", "--penalty", **PENALTIES)
@click.option("--tune-on", type=float, help="Share of questions to choose parameters on; 0: score on all.  [default: 0.5]")
@click.option("--splits", type=int, help="Number of splits over which each rule is summarised.  [default: 10]")
@click.option("--out", type=PATH, help="Output folder.  [default: RUN/compare]")
@click.option("--quiet", is_flag=True, help="Write the files and print nothing.")
@JSON_OPTION
def command(runs: tuple[Path, ...], quiet: bool, as_json: bool, **options: Any) -> None:
    """Compare the stopping rules on the recorded traces of RUNS: tokens saved, accuracy lost, and the best rule.

    Each rule is replayed at every value of its main parameter. Values are chosen on one half of the questions and scored
    on the other half. Without any known answer, agreement with the final answer of each trace takes the place of accuracy.
    docs/compare.md explains each number.
    """
    check_installed("numpy", "matplotlib")
    from cgr.lab.compare import write_comparison

    written = write_comparison(runs, **chosen(options))
    if as_json:
        say_json(written.to_dict())
    elif not quiet:
        _show(written)


def _show(written: WrittenComparison) -> None:
    from rich.console import Console

    console = Console(highlight=False, markup=False, emoji=False, soft_wrap=True)
    for compared in written.comparisons:
        _show_one(compared, console)
    console.print(visible(str(written.folder)))


def _show_one(compared: Compared, console: Console) -> None:
    from cgr.lab.compare import tables
    from cgr.lab.score.adaptive import prospect_sentences
    from cgr.lab.score.agreement import NO_GOLDS

    run = compared.run
    seeds = "1 seed" if compared.seeds == 1 else f"{compared.seeds} seeds"
    console.print(visible(f"{run.name}: {run.model}, {compared.questions} questions × {seeds}"), style="bold")
    console.print(tables.how_chosen(compared) + "\n", style="dim")
    header, *rows = tables.table_lines(compared)
    console.print(tables.legend(compared), style="dim")
    console.print(header, style="dim")
    more = ("", *tables.further_lines(compared), "") if compared.entries else ("",)
    for line in (*rows, *more, *tables.sentences(compared)):
        console.print(visible(line))
    room = prospect_sentences(compared.headroom, compared.false_sure, compared.verdict)
    for line in (tables.settled_by(compared), *room):
        if line:
            console.print(visible(line))
    for note in compared.notes:
        if note == NO_GOLDS:  # said above, by `how_chosen`
            continue
        console.print(visible(f"Note: {note}"), style="yellow")
    if compared.missing:
        console.print("\nNot compared:", style="dim")
    for reason, hint in tables.reasons(compared.missing):
        console.print(visible(f"  {reason} {hint}"), style="dim")
    console.print("")
