"""`cgr probe`: probe recorded traces, as in the paper."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import click

from cgr.cli.main import say
from cgr.cli.shared.options import (
    AGGREGATE,
    JSON_OPTION,
    PATH,
    PROBES,
    QUIET_OPTION,
    SESSIONS,
    ProbesCommand,
    names_in,
    open_given,
    other_model_options,
    refuse_probe_model,
    settings_options,
)
from cgr.engines.open import ModelOptions
from cgr.errors import ModelNotFound, UsageError
from cgr.lab.store.config import IMPORTED, WHERE, RunConfig

NAMED = "--model FILE.gguf, or another model."


@click.command("probe", cls=ProbesCommand)
@click.argument("run", type=PATH)
@click.option("--at", "where", type=click.Choice(WHERE), default="interval", show_default=True,
              help="Where to cut: every --interval tokens, before Waits, after paragraphs, or at the start.")  # fmt: skip
@settings_options("interval", help="Thinking tokens between two probes.  [default: the run's]")
@settings_options("prefix", default=None, help="Text that a probe appends to ask for the answer.  [default: the run's]")
@settings_options("close_think", default=None,
                  help="Whether to write the end tag before the prefix.  [default: the run's]")  # fmt: skip
@settings_options("max_answer_tokens", help="Maximum tokens of a probed answer.  [default: the run's]")
@settings_options("aggregate", default=None, help=f"{AGGREGATE}  [default: the run's]")
@click.option("--for", "rules", help="Record the probes that these rules need, such as deer,dynasor; all: every rule.")
@click.option(
    PROBES,
    "name",
    metavar="NAME",
    help="Name of the probe set.  [default: default if it is the first, else a name from its options]",
)
@click.option("--sessions", type=int, help=SESSIONS)
@other_model_options
@QUIET_OPTION
@JSON_OPTION
def command(
    run: Path, rules: str | None, given: ModelOptions, sessions: int | None, quiet: bool, as_json: bool, **request: Any
) -> int:
    """Cut every trace of a RUN at many positions, ask for the answer at each cut, and record answers and certainties.

    A run can hold several probe sets. If the command is interrupted, run it again: it continues where it stopped.
    """
    from cgr.cli.shared.finish import finish, sessions_for
    from cgr.lab.record.probe import check_probeable, probe_each, room_for
    from cgr.lab.store import Store
    from cgr.lab.store.config import ALL, ProbeRequest, requests_for
    from cgr.settings import options_note
    from cgr.solve import open_model

    refuse_probe_model(given, f"Probe with another model: --model {given.probe_model}")
    own = ProbeRequest(**request)
    if rules is not None and not names_in(rules):
        raise UsageError("--for names no rule.", "Name rules, as in --for deer,dynasor; all: every rule.")
    if rules is not None and own != ProbeRequest(interval=own.interval):
        raise UsageError("With --for, the rules determine the probes.", "Beside --for, use no probe option but --interval.")
    with Store.open(run) as store:
        check_probeable(store)
        config, there, room, questions = store.config, store.probe_sets(), room_for(store), store.questions()
    requests = [own] if rules is None else requests_for(names_in(rules), config, there.values(), own.interval)
    for name in names_in(rules or ""):
        if name != ALL and (note := _without_probes(name, config)):
            say(f"note:  {note}", err=True)
    if not requests and not (quiet or as_json):
        say(f"No probes were made in {run}.")
        return 0
    if not requests:
        return finish(lambda progress: None, run, None, quiet, as_json)
    probed_model = _probed_model(given, run, config.model)
    count = sessions_for(sessions, probed_model)
    try:
        model = open_given(probed_model, sessions=count, budget=room)
    except ModelNotFound as error:
        raise error if given.model else ModelNotFound(error.message, f"Name the model to probe: {NAMED}") from error
    for note in options_note(questions, own.aggregate or config.asking.aggregate, model.engine.capabilities):
        say(f"note:  {note}", err=True)
    work = partial(probe_each, run, requests, model, open_generator=open_model, sessions=count)
    return finish(work, run, None, quiet, as_json)


def _probed_model(given: ModelOptions, run: Path, model: str) -> ModelOptions:
    """The model to probe: the given one, else the model of the run, if that is known."""
    if given.model or (given.addresses and model == IMPORTED):
        return given
    if model == IMPORTED:
        raise UsageError(
            f"The run in {run} was imported and does not name its model.", "Name the model to probe: --model M."
        )
    return replace(given, model=model)


def _without_probes(name: str, config: RunConfig) -> str | None:
    """What a rule reads if `cgr probe` can record nothing for it, as a sentence; None if it reads probes."""
    from cgr.lab.store.config import NATURAL, requests_of, rule_at_interval

    rule = rule_at_interval(name, config.interval)
    if rule.forces and config.rule == NATURAL:
        return (
            f"The rule {name!r} is not replayed on this run: it forces the thinking to continue. "
            "Record a forced run: cgr generate --rule budget-forcing --probe ..."
        )
    if rule.forces or requests_of(rule):
        return None
    if "thinking_logprobs" not in rule.needs:
        return f"The rule {name!r} reads no probes: there is nothing to record for it."
    state = "which this run has" if config.logprobs else "which this run lacks: make it with cgr generate --logprobs"
    return f"The rule {name!r} reads no probes, but the log-probabilities of the thinking, {state}."
