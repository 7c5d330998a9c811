"""`cgr export`: write a run to a file."""

from __future__ import annotations

from pathlib import Path

import click

from cgr.cli.main import say
from cgr.cli.shared.options import PATH, PROBES, ProbesCommand
from cgr.lab.exchange import FORMATS, STANDARD_OUTPUT, FileFormat, export_run
from cgr.lab.store import Store

MIN_DIGITS = 4  # fewer would move certainties across thresholds such as 0.999


@click.command("export", cls=ProbesCommand)
@click.argument("run", type=PATH)
@click.argument("out", type=PATH)
@click.option("--format", "form", type=click.Choice(FORMATS), help="Format of OUT.  [default: from its name, or jsonl]")
@click.option(
    PROBES,
    "probe_set",
    metavar="NAME",
    help="Name of the probe set to export.  [default: the set called default, or the run's first]",
)
@click.option("--all-probes", is_flag=True, help="Write the other probe sets too, if all of these traces are in them.")
@click.option(
    "--digits",
    type=click.IntRange(MIN_DIGITS, 17),
    help="Round numbers to this many significant digits, for small compressed files.  [default: all digits]",
)
@click.option("--no-alternatives", is_flag=True, help="Leave out the tokens that probes did not choose: half of a file.")
@click.option("--no-thinking", is_flag=True, help="Leave out the text and the tokens of the thinking.")
@click.option(
    "--no-text",
    is_flag=True,
    help="Leave out the texts of the questions, the thinking and the replies, and the folders of paths.",
)
def command(
    run: Path,
    out: Path,
    form: FileFormat | None,
    probe_set: str | None,
    all_probes: bool,
    digits: int | None,
    no_alternatives: bool,
    no_thinking: bool,
    no_text: bool,
) -> None:
    """Write the traces of a RUN, with one probe set or all, to the file OUT (`-`: standard output): one trace per line.

    A name that ends in .jsonl.gz is compressed.

    docs/exchange.md describes the format.
    """
    kept = {"thinking": not no_thinking, "text": not no_text, "all_probes": all_probes, "alternatives": not no_alternatives}
    count = export_run(run, out, form, probe_set=probe_set, digits=digits, **kept)
    with Store.open(run) as store:
        left = len(store.made()) - count
    note = f" {left} other traces have no probes in this set and were left out." if left else ""
    counted = "1 trace" if count == 1 else f"{count} traces"
    to_output = out == STANDARD_OUTPUT
    where = "the output" if to_output else out
    say(f"{counted} of {run} {'is' if count == 1 else 'are'} in {where}.{note}", err=to_output)
