"""`cgr probe`: the paper's protocol on saved traces."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from cgr import certainty, probing
from cgr.cli.shared.model_options import SESSIONS, model_options, open_given, refuse_probe_model
from cgr.engines.open import ModelOptions
from cgr.errors import UsageError
from cgr.lab.store.config import WHERE, Where


@click.command("probe")
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--at", "where", type=click.Choice(WHERE), default="interval", show_default=True,
              help="Where to cut: every --interval tokens, before each Wait, or after each paragraph.")  # fmt: skip
@click.option("--interval", type=int, help="Thinking tokens between probes.  [default: the run's]")
@click.option("--prefix", help="What a probe appends.  [default: the run's]")
@click.option("--close-think", type=click.Choice(probing.CLOSE_THINK), help="Whether the end tag goes before the prefix.")
@click.option("--max-answer-tokens", type=int, help="Tokens of an answer at most.  [default: the run's]")
@click.option("--aggregate", help=f"One of {', '.join(certainty.AGGREGATES)}.  [default: the run's]")
@click.option("--for", "rules", help="Record what these rules need, such as deer,dynasor, or all of them: all.")
@click.option("--set", "name", help="What to call these probes.  [default: default, then by what they are]")
@click.option("--sessions", type=int, help=SESSIONS)
@model_options
@click.option("--quiet", is_flag=True, help="Show no progress and no summary.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object at the end and nothing else.")
def command(
    run: Path,
    where: Where,
    interval: int | None,
    prefix: str | None,
    close_think: probing.CloseThink | None,
    max_answer_tokens: int | None,
    aggregate: str | None,
    rules: str | None,
    name: str | None,
    given: ModelOptions,
    sessions: int | None,
    quiet: bool,
    as_json: bool,
) -> int:
    """Cut every saved trace of a RUN, ask at each cut what the answer would be, and record it.

    A run can hold several sets of probes. Interrupted at any moment, the same command goes on where it stopped.
    """
    from cgr.cli.shared.finish import finish, sessions_for
    from cgr.lab.record.jobs import Progress
    from cgr.lab.record.probe import check_probeable, probe_each
    from cgr.lab.store import Store
    from cgr.lab.store.config import ProbeRequest
    from cgr.lab.store.needed_probes import requests_for
    from cgr.solve import open_model

    refuse_probe_model(given, f"Probe with another model: --model {given.probe_model}")
    own = ProbeRequest(where, interval, prefix, close_think, max_answer_tokens, aggregate, name)
    if rules is not None and own != ProbeRequest(interval=interval):
        raise UsageError("Rules say themselves how they ask.", "Leave out the other options beside --for.")
    with Store.open(run) as store:
        check_probeable(store)
        config, there = store.config, store.probe_sets()
    names = (rules or "").replace(",", " ").split()
    wishes = [own] if rules is None else requests_for(names, config, there.values(), interval)
    asked_of = given if given.model else replace(given, model=config.model)
    at_once = sessions_for(sessions, asked_of)
    progress = Progress(quiet=quiet or as_json)
    asked = open_given(asked_of, sessions=at_once, budget=config.budget)
    return finish(
        lambda: probe_each(run, wishes, asked, open_generator=open_model, sessions=at_once, progress=progress),
        run,
        None,
        progress,
        quiet,
        as_json,
    )
