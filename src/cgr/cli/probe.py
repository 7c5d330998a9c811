"""`cgr probe`: probe recorded traces, as in the paper."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import click

from cgr.certainty import AGGREGATES
from cgr.cli.shared.arguments import JSON_OPTION, PATH, QUIET_OPTION, names_in
from cgr.cli.shared.options import SESSIONS, model_options, open_given, refuse_probe_model, settings_options
from cgr.engines.open import ModelOptions
from cgr.errors import UsageError
from cgr.lab.store.config import WHERE


@click.command("probe")
@click.argument("run", type=PATH)
@click.option("--at", "where", type=click.Choice(WHERE), default="interval", show_default=True,
              help="Where to cut: every --interval tokens, before Waits, after paragraphs, or at the start.")  # fmt: skip
@settings_options("interval", help="Thinking tokens between two probes.  [default: the run's]")
@settings_options("prefix", default=None, help="Text that a probe appends to ask for the answer.  [default: the run's]")
@settings_options("close_think", default=None,
                  help="Whether to write the end tag before the prefix.  [default: the run's]")  # fmt: skip
@settings_options("max_answer_tokens", help="Maximum tokens of a probed answer.  [default: the run's]")
@settings_options("aggregate", default=None, help=f"One of {', '.join(AGGREGATES)}.  [default: the run's]")
@click.option("--for", "rules", help="Record the probes that these rules need, such as deer,dynasor; all: every rule.")
@click.option("--set", "name", help="Name of the probe set.  [default: default, then a name from its settings]")
@click.option("--sessions", type=int, help=SESSIONS)
@model_options
@QUIET_OPTION
@JSON_OPTION
def command(
    run: Path, rules: str | None, given: ModelOptions, sessions: int | None, quiet: bool, as_json: bool, **request: Any
) -> int:
    """Cut every trace of a RUN at many positions, ask for the answer at each cut, and record answers and certainties.

    A run can hold several probe sets. If the command is interrupted, run it again: it continues where it stopped.
    """
    from cgr.cli.shared.finish import finish, sessions_for
    from cgr.lab.record.probe import check_probeable, probe_each
    from cgr.lab.store import Store
    from cgr.lab.store.config import ProbeRequest, requests_for
    from cgr.solve import open_model

    refuse_probe_model(given, f"Probe with another model: --model {given.probe_model}")
    own = ProbeRequest(**request)
    if rules is not None and not names_in(rules):
        raise UsageError("--for names no rule.", "Name rules, as in --for deer,dynasor; all: every rule.")
    if rules is not None and own != ProbeRequest(interval=own.interval):
        raise UsageError("With --for, the rules determine the probes.", "Beside --for, use no probe option but --interval.")
    with Store.open(run) as store:
        check_probeable(store)
        config, there = store.config, store.probe_sets()
    requests = [own] if rules is None else requests_for(names_in(rules), config, there.values(), own.interval)
    probed_model = given if given.model else replace(given, model=config.model)
    count = sessions_for(sessions, probed_model)
    model = open_given(probed_model, sessions=count, budget=config.budget)
    work = partial(probe_each, run, requests, model, open_generator=open_model, sessions=count)
    return finish(work, run, None, quiet, as_json)
