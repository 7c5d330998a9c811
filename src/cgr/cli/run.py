"""`cgr run`: a whole experiment from a file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cgr.cli.report import check_installed
from cgr.cli.shared.model_options import model_options, refuse_probe_model
from cgr.engines.open import ModelOptions
from cgr.errors import UsageError

if TYPE_CHECKING:
    from cgr.lab.recipes.recipe import Recipe

OF_THE_MODEL = ("tokenizer", "think_tags", "threads", "device", "dtype", "dialect", "chunk")


@click.command("run")
@click.argument("recipe", type=click.Path(path_type=Path))
@click.option("--dry-run", is_flag=True, help="Print the plan and do nothing: no model, no data set.")
@click.option("--out", type=click.Path(path_type=Path), help="The run's folder.  [default: runs/NAME-OF-THE-RECIPE]")
@model_options
@click.option("--seeds", type=int, help="Traces for each question.  [default: the recipe's]")
@click.option("--limit", type=int, help="The first so many questions only.  [default: the recipe's]")
@click.option("--tokens-per-second", type=float, help="For the plan's estimate of time.  [default: the recipe's]")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object at the end and nothing else.")
def command(
    recipe: Path,
    dry_run: bool,
    out: Path | None,
    given: ModelOptions,
    tokens_per_second: float | None,
    as_json: bool,
    **options: int | None,
) -> int:
    """Carry out a RECIPE, such as recipes/embedded.toml: generate, probe and report.

    What is said here of the model (--model, --base-url, ...) is in place of what the recipe says.

    Interrupted at any moment, the same command goes on where it stopped. docs/recipes.md says what a recipe holds.
    """
    check_installed("numpy", "matplotlib")
    from cgr.cli.shared.recipe import conduct
    from cgr.lab.recipes.recipe import read_recipe

    if tokens_per_second is not None and not dry_run:
        raise UsageError("--tokens-per-second is for the plan.", "Add --dry-run, or leave it out.")
    refuse_probe_model(given, f"Probe the finished run with it: cgr probe RUN --model {given.probe_model}")
    changed = _changed(read_recipe(recipe), given, tokens_per_second=tokens_per_second, **options)
    if dry_run:
        _show_plan(changed, out, as_json)
        return 0
    return conduct(changed, out or changed.folder, as_json=as_json, api_key=given.api_key)


def _changed(recipe: Recipe, given: ModelOptions, **options: Any) -> Recipe:
    """Another model drops what was said of the recipe's own; another address alone does not."""
    chosen: dict[str, Any] = {name: getattr(given, name) for name in OF_THE_MODEL}
    chosen |= {"base_url": " ".join(given.base_url)}
    said = {name: value for name, value in chosen.items() if value}
    said |= {name: value for name, value in options.items() if value is not None}
    return replace(recipe.with_model(given.model) if given.model is not None else recipe, **said)


def _show_plan(recipe: Recipe, out: Path | None, as_json: bool) -> None:
    from cgr.lab.recipes.forecast import forecast, in_lines

    plan = forecast(recipe, out)
    click.echo(plan.to_json() if as_json else "\n".join(in_lines(plan)))
