"""`cgr ablate`: the paper's ablations on a recorded run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cgr.cli.report import check_installed

if TYPE_CHECKING:
    from cgr.lab.ablate import WrittenAblations


@click.command("ablate")
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--forced", type=click.Path(path_type=Path), multiple=True, help="A run that was forced on; may be repeated.")
@click.option("--only", help="Some of threshold, interval, forcing, aggregation, asking, prober, with commas.")
@click.option("--threshold", type=float, default=0.99, show_default=True, help="Where stopping is looked at.")
@click.option("--out", type=click.Path(path_type=Path), help="Where to write.  [default: RUN/ablations]")
@click.option("--json", "as_json", is_flag=True, help="Print ablations.json and nothing else.")
def command(
    run: Path, forced: tuple[Path, ...], only: str | None, threshold: float, out: Path | None, as_json: bool
) -> None:
    """Vary what a RUN was recorded with: each ablation as a sentence, a table and a figure.

    Those for which something is missing are named, with the command that records it.
    """
    check_installed("numpy", "matplotlib")
    from cgr.lab.ablate import ablate

    chosen = None if only is None else tuple(only.replace(",", " ").split())
    written = ablate(run, out, forced=forced, only=chosen, threshold=threshold)
    if as_json:
        click.echo(json.dumps(written.ablations.to_dict(), ensure_ascii=False))
    else:
        show(written)


def show(written: WrittenAblations) -> None:
    for one in written.ablations.made:
        click.echo(f"{one.title}: {one.ablated.conclusion}\n")
    for lacking in written.ablations.missing:
        click.echo(f"{lacking.title}: not recorded. {lacking.why}\n  {lacking.command}\n")
    click.echo(str(written.page))
