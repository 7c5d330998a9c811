"""`cgr demo`: a small version of the paper's experiment, on the embedded model."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from cgr.cli.shared.options import JSON_OPTION, PATH, check_installed

ABOUT = (
    "The embedded model thinks about {questions}, {times} each. A probe regularly asks for the answer\n"
    "and its certainty. First results appear within a minute. The time left is shown once each problem was thought about\n"
    "once: before that it would be a guess. After Ctrl-C, run the same command again: it continues."
)
NEXT = {
    "open {run}": "opens the page in a browser",
    "solve": "one problem: the thinking, the probes and the stop",
    "probe {run} --for all": "adds the probes that other rules need, then",
    "compare {run}": "compares all rules on these traces",
}


@click.command("demo")
@click.option("--out", type=PATH, default=Path("runs/demo"), show_default=True, help="Folder of the run.")
@click.option("--questions", type=int, default=36, show_default=True, help="Number of arithmetic problems.")
@click.option("--seeds", type=int, default=4, show_default=True, help="Traces per problem.")
@click.option("--budget", type=int, hidden=True, help="Maximum number of thinking tokens, for a faster demo.")
@JSON_OPTION
def command(out: Path, questions: int, seeds: int, budget: int | None, as_json: bool) -> int:
    """Run a small complete experiment: generate, probe, report. It takes about a minute on two free cores and needs no
    download.

    The embedded model answers problems that it was not trained on. The command prints the tokens saved and the accuracy
    when thinking stops at a certainty of 0.96 to 0.99, beside those of a fixed budget of the same cost, and the address of
    a web page with all tables and figures. If the run is already there, only the results are printed.
    """
    check_installed("numpy", "matplotlib")
    from cgr.cli.shared.recipe import run_recipe
    from cgr.lab.questions.arithmetic import NAME
    from cgr.lab.recipes.recipe import Recipe

    recipe = Recipe(
        name="demo",
        about=ABOUT.format(
            questions="1 arithmetic problem" if questions == 1 else f"{questions} arithmetic problems",
            times="once" if seeds == 1 else f"{seeds} times",
        ),
        questions=NAME,
        limit=questions,
        seeds=seeds,
        budget=budget,
        written_tokens=64,  # enough: the final text of this model is much shorter
        probe="on-the-way",
    )
    then = {arguments.format(run=shlex.quote(str(out))): what for arguments, what in NEXT.items()}
    return run_recipe(recipe, out, as_json=as_json, live=True, then=then)
