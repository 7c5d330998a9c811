"""`cgr demo`: the paper's experiment in miniature, on the embedded model."""

from __future__ import annotations

from pathlib import Path

import click

from cgr.cli.report import check_installed

ABOUT = (
    "The embedded model thinks about {questions} arithmetic problems, {seeds} times each, and is asked on the way what\n"
    "the answer would be, and how sure it is. Ctrl-C loses nothing: the same command goes on."
)
WRITTEN_TOKENS = 64  # an answer of this model is far shorter


@click.command("demo")
@click.option("--out", type=click.Path(path_type=Path), default=Path("runs/demo"), show_default=True, help="The run.")
@click.option("--questions", type=int, default=30, show_default=True, help="Arithmetic problems.")
@click.option("--seeds", type=int, default=8, show_default=True, help="Traces for each.")
@click.option("--budget", type=int, hidden=True, help="Thinking tokens at most, for a hurry.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object at the end and nothing else.")
def command(out: Path, questions: int, seeds: int, budget: int | None, as_json: bool) -> int:
    """Run a whole experiment in miniature: generate, probe, report. A few minutes; the second time, none.

    The embedded model answers problems that it never saw. Shown is what stopping at a certainty of .96 to .99 would have
    saved and cost, and where the page with every table and figure is.
    """
    check_installed("numpy", "matplotlib")
    from cgr.cli.shared.recipe import conduct
    from cgr.lab.questions.arithmetic import NAME
    from cgr.lab.recipes.recipe import Recipe

    recipe = Recipe(
        name="demo",
        about=ABOUT.format(questions=questions, seeds=seeds),
        questions=NAME,
        limit=questions,
        seeds=seeds,
        budget=budget,
        written_tokens=WRITTEN_TOKENS,
        probe="on-the-way",
    )
    return conduct(recipe, out, as_json=as_json)
