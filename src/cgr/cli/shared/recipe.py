"""How `cgr demo` and `cgr run` run a recipe: progress, then a table, a figure and a page, or JSON."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from cgr.cli.main import say, say_json
from cgr.cli.shared.finish import INTERRUPTED, nothing_recorded, print_summary, sessions_for
from cgr.cli.shared.options import waiting_for
from cgr.engines.open import ModelOptions
from cgr.lab.recipes.live import LiveResults
from cgr.lab.recipes.recipe import Recipe
from cgr.lab.recipes.run import Experiment
from cgr.lab.record.jobs import Progress, Summary, summarise
from cgr.lab.report import JSON, numbers
from cgr.lab.report.tables import Headline, headline_lines, headlines, main_figure
from cgr.lab.store.schema import FILE
from cgr.records import Record

WRITING = "Writing the report: tables, figures and a page."
EXPLANATION = """\
Fixed budget: the accuracy of one budget for all traces that costs as many tokens as CGR, probes included.
Diff. is in percentage points. Saved is a share of the baseline's thinking; Net subtracts probe tokens.
Grade: 1 for a correct answer, -p for a wrong one, 0 if CGR is not certain and abstains."""


@dataclass(frozen=True, slots=True)
class RecipeResult(Record):
    """The result of one call. `thinking` and `probing` count the traces and probes of the run, and which are new. `report`,
    `picture`, `page` and `ablations` are paths. `notes`: of the report, without the one about
    what the model wrote after its thinking, which is in report.json."""

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


def run_recipe(
    recipe: Recipe,
    folder: Path,
    *,
    as_json: bool,
    api_key: str | None = None,
    live: bool = False,
    then: Mapping[str, str] | None = None,
) -> int:
    """Do what the run still lacks, print the results, and return the exit code: 1 if something failed, 130 for Ctrl-C.

    `live`: show the results of the traces so far. `then`: arguments of `cgr` to try next, each with what it does.
    """
    given = ModelOptions(recipe.model, recipe.base_urls)
    opening = partial(waiting_for, given.addresses)
    experiment = Experiment(recipe, folder, sessions=sessions_for(recipe.sessions, given), api_key=api_key, opening=opening)
    probing = Progress(quiet=as_json)
    thinking = LiveResults(recipe.thresholds, recipe.penalties, quiet=as_json) if live else Progress(quiet=as_json)
    if recipe.about and not as_json:
        say(f"{recipe.about}\n")
    try:
        experiment.make(thinking, probing, lambda: Progress(quiet=as_json))
        for note in experiment.notes():
            say(f"note:  {note}", err=True)
        result = _result(experiment, thinking, probing, quiet=as_json)
    except KeyboardInterrupt:
        return _interrupted(experiment, thinking)
    if as_json:
        say_json(result.to_json())
    else:
        _show(result)
        _show_next(then or {})
    return 1 if result.thinking.failed or (result.probing and result.probing.failed) else 0


def _result(experiment: Experiment, thinking: Progress, probing: Progress, *, quiet: bool) -> RecipeResult:
    folder, plan = experiment.folder, experiment.plan
    thought = summarise(folder, plan.wanted(), thinking)
    probed = None if plan.probe or not thought.traces else summarise(folder, None, probing)
    if not thought.traces or (probed and not probed.traces):
        return RecipeResult(str(folder), thought, probed)
    if thinking.new and not thinking.visible and not quiet:
        say(WRITING, err=True)
    with thinking.console.status(WRITING) if thinking.visible else nullcontext():
        written = experiment.report()
        ablated = experiment.ablate() if experiment.recipe.ablations else None
    (report,) = written.reports
    picture = main_figure(written.folder)
    return RecipeResult(
        str(folder),
        thought,
        probed,
        results=headlines(report),
        notes=tuple(note for note in report.notes if note not in numbers.written_note(report.written)),
        report=str(written.folder / JSON),
        picture=str(picture) if picture else None,
        page=str(written.page) if written.page else None,
        ablations=str(ablated.page) if ablated else None,
        conclusions=tuple(f"{one.title}: {made.conclusion}" for one, made in ablated.ablations.made) if ablated else (),
    )


def _show(result: RecipeResult) -> None:
    print_summary(result.thinking, then=False)
    if result.probing:
        print_summary(result.probing, then=False)
    if not result.results:
        return
    say("\n" + "\n".join(headline_lines(result.results)))
    say(f"\n{EXPLANATION}")
    for note in result.notes:
        say(f"Note: {note}")
    say("")
    for line in result.conclusions:
        say(f"{line}\n")
    for name, path in (("picture", result.picture), ("page", result.page), ("ablations", result.ablations)):
        if path:
            say(f"{name + ':':<10} {Path(path).resolve().as_uri()}")


def _show_next(then: Mapping[str, str]) -> None:
    """Print commands as they can be typed here: `make demo` calls a `cgr` that is not on the path."""
    program = "cgr" if shutil.which("cgr") or sys.argv[0].endswith(".py") else sys.argv[0]
    commands = {f"{program} {arguments}": what for arguments, what in then.items()}
    width = max(map(len, commands), default=0)
    for number, (command, what) in enumerate(commands.items()):
        say(("" if number else "\nNext:\n") + f"  {command:<{width}}  {what}")


def _interrupted(experiment: Experiment, thinking: Progress) -> int:
    if not (experiment.folder / FILE).is_file():
        return nothing_recorded()
    print_summary(summarise(experiment.folder, experiment.plan.wanted(), thinking, interrupted=True))
    return INTERRUPTED
