"""How `cgr demo` and `cgr run` run a recipe: progress, then a table, a figure and a page, or JSON."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from cgr.cli.main import say, say_json
from cgr.cli.shared.finish import INTERRUPTED, nothing_recorded, print_summary, sessions_for
from cgr.cli.shared.options import waiting_for
from cgr.engines.open import ModelOptions
from cgr.lab.recipes.recipe import Recipe
from cgr.lab.recipes.run import Experiment
from cgr.lab.record.jobs import Progress, Summary, summarise
from cgr.lab.report import JSON
from cgr.lab.report.tables import Headline, headline_lines, headlines, main_figure
from cgr.lab.store.schema import FILE
from cgr.records import Record


@dataclass(frozen=True, slots=True)
class RecipeResult(Record):
    """The result of one call. `thinking` and `probing` count the traces and probes of the run, and which are new. `report`,
    `picture`, `page` and `ablations` are paths."""

    run: str
    thinking: Summary
    probing: Summary | None = None
    results: tuple[Headline, ...] = ()
    notes: tuple[str, ...] = ()
    report: str | None = None
    picture: str | None = None
    page: str | None = None
    ablations: str | None = None
    conclusions: tuple[str, ...] = ()


def run_recipe(recipe: Recipe, folder: Path, *, as_json: bool, api_key: str | None = None) -> int:
    """Do what the run still lacks, print the results, and return the exit code: 1 if something failed, 130 for Ctrl-C."""
    given = ModelOptions(recipe.model, recipe.base_urls)
    opening = partial(waiting_for, given.addresses)
    experiment = Experiment(recipe, folder, sessions=sessions_for(recipe.sessions, given), api_key=api_key, opening=opening)
    thinking, probing = Progress(quiet=as_json), Progress(quiet=as_json)
    if recipe.about and not as_json:
        say(f"{recipe.about}\n")
    try:
        experiment.make(thinking, probing, lambda: Progress(quiet=as_json))
        for note in experiment.notes():
            say(f"note:  {note}", err=True)
        result = _result(experiment, thinking, probing)
    except KeyboardInterrupt:
        return _interrupted(experiment, thinking)
    if as_json:
        say_json(result.to_json())
    else:
        _show(result)
    return 1 if result.thinking.failed or (result.probing and result.probing.failed) else 0


def _result(experiment: Experiment, thinking: Progress, probing: Progress) -> RecipeResult:
    folder, plan = experiment.folder, experiment.plan
    thought = summarise(folder, plan.wanted(), thinking)
    probed = None if plan.probe or not thought.traces else summarise(folder, None, probing)
    if not thought.traces or (probed and not probed.traces):
        return RecipeResult(str(folder), thought, probed)
    with thinking.console.status("Writing the report") if thinking.visible else nullcontext():
        written = experiment.report()
        ablated = experiment.ablate() if experiment.recipe.ablations else None
    (report,) = written.reports
    picture = main_figure(written.folder)
    return RecipeResult(
        str(folder),
        thought,
        probed,
        results=headlines(report),
        notes=report.notes,
        report=str(written.folder / JSON),
        picture=str(picture) if picture else None,
        page=str(written.page) if written.page else None,
        ablations=str(ablated.page) if ablated else None,
        conclusions=tuple(f"{one.title}: {made.conclusion}" for one, made in ablated.ablations.made) if ablated else (),
    )


def _show(result: RecipeResult) -> None:
    print_summary(result.thinking)
    if result.probing:
        print_summary(result.probing)
    if not result.results:
        return
    say("\n" + "\n".join(headline_lines(result.results)))
    say("\nDiff. is in percentage points. Saved is a share of the baseline's thinking; Net subtracts probe tokens.")
    say("Grade: 1 for a correct answer, -p for a wrong one, 0 if CGR is not certain and abstains.")
    for note in result.notes:
        say(f"Note: {note}")
    say("")
    for line in result.conclusions:
        say(f"{line}\n")
    for name, path in (("picture", result.picture), ("page", result.page), ("ablations", result.ablations)):
        if path:
            say(f"{name + ':':<8} {path}")


def _interrupted(experiment: Experiment, thinking: Progress) -> int:
    if not (experiment.folder / FILE).is_file():
        return nothing_recorded()
    print_summary(summarise(experiment.folder, experiment.plan.wanted(), thinking, interrupted=True))
    return INTERRUPTED
