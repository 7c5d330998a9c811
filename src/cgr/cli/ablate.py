"""`cgr ablate`: the paper's ablations on a recorded run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cgr.cli.main import say, say_json
from cgr.cli.shared.options import JSON_OPTION, NAMES, PATH, check_installed

if TYPE_CHECKING:
    from cgr.lab.ablate import WrittenAblations


@click.command("ablate")
@click.argument("run", type=PATH)
@click.option("--forced", type=PATH, multiple=True, help="A run made with budget forcing; may be repeated.")
@click.option("--only", **NAMES, help="Only some of threshold,interval,forcing,aggregation,asking,prober.  [default: all]")
@click.option("--threshold", type=float, default=0.99, show_default=True, help="The threshold at which stops are analysed.")
@click.option("--out", type=PATH, help="Output folder.  [default: RUN/ablations]")
@JSON_OPTION
def command(run: Path, as_json: bool, **options: Any) -> None:
    """Show how each setting changes the results of a RUN, from its recorded traces and probes.

    Each ablation gives a conclusion, a table and a figure. If a run lacks the probes for an ablation, the command that
    records them is printed.
    """
    check_installed("numpy", "matplotlib")
    from cgr.lab.ablate import ablate

    written = ablate(run, **options)
    if as_json:
        say_json(written.ablations.to_dict())
    else:
        _show(written)


def _show(written: WrittenAblations) -> None:
    for one, result in written.ablations.made:
        say(f"{one.title}: {result.conclusion}\n")
    for lacking in written.ablations.missing:
        say(f"{lacking.title}: not recorded. {lacking.why}\n  {lacking.command}\n")
    say(str(written.page))
