"""How `cgr demo` and `cgr run` carry out a recipe: with progress, then a table, a picture and a page, or as JSON."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

import click

from cgr.cli.shared.finish import sessions_for
from cgr.engines.open import ModelOptions
from cgr.lab.recipes.recipe import Recipe
from cgr.lab.recipes.run import Experiment
from cgr.lab.record.jobs import Progress, Summary, failure_lines, summarise, summary_lines
from cgr.lab.report import JSON, WrittenReport, headline
from cgr.lab.report.headline import Headline
from cgr.lab.store.schema import FILE
from cgr.records import Record


@dataclass(frozen=True, slots=True)
class Outcome(Record):
    """What one call came to. `thinking` and `probing` say what there is and what of it is new."""

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

    @property
    def failed(self) -> int:
        return self.thinking.failed + (self.probing.failed if self.probing else 0)


def conduct(recipe: Recipe, folder: Path, *, as_json: bool, api_key: str | None = None) -> int:
    """Do what is missing and say what came of it. Exit code 1 if something failed, 130 for Ctrl-C."""
    at_once = sessions_for(recipe.sessions, ModelOptions(recipe.model, recipe.base_urls))
    experiment = Experiment(recipe, folder, sessions=at_once, api_key=api_key)
    thinking, probing = Progress(quiet=as_json), Progress(quiet=as_json)
    if recipe.about and not as_json:
        click.echo(f"{recipe.about}\n")
    try:
        experiment.make(thinking, probing, lambda: Progress(quiet=as_json))
        for note in experiment.notes():
            click.echo(f"note:  {note}", err=True)
        outcome = _outcome(experiment, thinking, probing)
    except KeyboardInterrupt:
        return _interrupted(experiment, thinking)
    if as_json:
        click.echo(outcome.to_json())
    else:
        _show(outcome)
    return 1 if outcome.failed else 0


def _outcome(experiment: Experiment, thinking: Progress, probing: Progress) -> Outcome:
    folder, plan = experiment.folder, experiment.plan
    thought = summarise(folder, plan.wanted(), thinking)
    probed = None if plan.probe or not thought.traces else summarise(folder, None, probing)
    if not thought.traces or (probed and not probed.traces):
        return Outcome(str(folder), thought, probed)
    with thinking.console.status("Writing the report") if thinking.visible else nullcontext():
        written = experiment.report()
        ablated = experiment.ablate() if experiment.recipe.ablations else None
    outcome = _reported(Outcome(str(folder), thought, probed), written)
    if ablated is None:
        return outcome
    said = tuple(f"{one.title}: {one.ablated.conclusion}" for one in ablated.ablations.made)
    return replace(outcome, ablations=str(ablated.page), conclusions=said)


def _reported(outcome: Outcome, written: WrittenReport) -> Outcome:
    (report,) = written.reports
    picture = headline.picture(written.folder)
    return Outcome(
        outcome.run,
        outcome.thinking,
        outcome.probing,
        headline.headlines(report),
        report.notes,
        str(written.folder / JSON),
        str(picture) if picture else None,
        str(written.page) if written.page else None,
    )


def _show(outcome: Outcome) -> None:
    for summary in (outcome.thinking, outcome.probing):
        for line in summary_lines(summary) if summary else ():
            click.echo(line)
        for line in failure_lines(summary.failures) if summary else ():
            click.echo(line, err=True)
    if not outcome.results:
        return
    click.echo("\n" + "\n".join(headline.in_lines(outcome.results)))
    click.echo("\nDiff. is in points; Saved and Net (less the probes' tokens) are shares of the baseline's thinking;")
    click.echo("Grade counts a right answer 1 and a wrong one -p, where CGR says nothing unless it is sure.")
    for note in outcome.notes:
        click.echo(f"Note: {note}")
    click.echo("")
    for line in outcome.conclusions:
        click.echo(f"{line}\n")
    for name, path in (("picture", outcome.picture), ("page", outcome.page), ("ablations", outcome.ablations)):
        if path:
            click.echo(f"{name + ':':<8} {path}")


def _interrupted(experiment: Experiment, thinking: Progress) -> int:
    lines = ["Interrupted before anything was recorded."]
    if (experiment.folder / FILE).is_file():
        lines = summary_lines(summarise(experiment.folder, experiment.plan.wanted(), thinking, interrupted=True))
    click.echo("\n".join(lines), err=True)
    return 130
