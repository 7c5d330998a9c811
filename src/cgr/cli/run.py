"""`cgr run`: run a whole experiment from a recipe file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cgr.cli.main import say, say_json
from cgr.cli.shared.options import JSON_OPTION, PATH, check_installed, chosen, other_model_options, refuse_probe_model
from cgr.engines.open import ModelOptions
from cgr.errors import UsageError

if TYPE_CHECKING:
    from cgr.lab.recipes.recipe import Recipe

OVERRIDABLE = ("tokenizer", "think_tags", "threads", "device", "dtype", "dialect", "chunk")


@click.command("run")
@click.argument("recipe", type=PATH)
@click.option("--dry-run", is_flag=True, help="Print the plan and do nothing else: load no model and no data set.")
@click.option("--out", type=PATH, help="Folder of the run.  [default: runs/NAME-OF-THE-RECIPE]")
@other_model_options
@click.option("--seeds", type=int, help="Traces per question.  [default: the recipe's]")
@click.option("--limit", type=int, help="Use only the first LIMIT questions.  [default: the recipe's]")
@click.option("--tokens-per-second", type=float, help="Speed for the time estimate of --dry-run.  [default: the recipe's]")
@JSON_OPTION
def command(
    recipe: Path, dry_run: bool, out: Path | None, given: ModelOptions, as_json: bool, **options: float | None
) -> int:
    """Run a RECIPE, such as recipes/embedded.toml: generate, probe and report.

    Model options given here (--model, --base-url, ...) replace those of the recipe.

    If the command is interrupted, run it again: it continues where it stopped. docs/recipes.md describes recipes.
    """
    check_installed("numpy", "matplotlib")
    from cgr.cli.shared.recipe import run_recipe
    from cgr.lab.recipes.forecast import forecast, in_lines
    from cgr.lab.recipes.recipe import read_recipe

    if options["tokens_per_second"] is not None and not dry_run:
        raise UsageError("--tokens-per-second is only for --dry-run.", "Add --dry-run, or leave out --tokens-per-second.")
    refuse_probe_model(given, f"Probe the finished run with it: cgr probe RUN --model {given.probe_model}")
    changed = _changed(read_recipe(recipe), given, options)
    if dry_run:
        plan = forecast(changed, out)
        if as_json:
            say_json(plan.to_json())
        else:
            say("\n".join(in_lines(plan)))
        return 0
    return run_recipe(changed, out or changed.folder, as_json=as_json, api_key=given.api_key)


def _changed(recipe: Recipe, given: ModelOptions, options: dict[str, Any]) -> Recipe:
    """The recipe with these options. Another model drops the recipe's model options; another address alone does not."""
    model = {name: getattr(given, name) for name in OVERRIDABLE} | {"base_url": " ".join(given.base_url)}
    changes = {name: value for name, value in model.items() if value} | chosen(options)
    return replace(recipe.with_model(given.model) if given.model is not None else recipe, **changes)
