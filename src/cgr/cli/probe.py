"""`cgr probe`: probe recorded traces, as in the paper."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cgr.cli.main import say
from cgr.cli.shared.machines import cluster_options, shard_option
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

if TYPE_CHECKING:
    from cgr.lab.store.shard import Shard

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
@click.option("--stated", "only_stated", is_flag=True,
              help="Make no probes; note where existing answers stand in the thinking (for older runs).")  # fmt: skip
@shard_option("Probe only part I of N, such as 3/16. RUN is that shard already, or a whole run: then add --out.")
@click.option("--out", type=PATH, help="Folder for the traces of the shard and their probes, copied from the whole RUN.")
@click.option("--sessions", type=int, help=SESSIONS)
@cluster_options
@other_model_options
@QUIET_OPTION
@JSON_OPTION
def command(
    run: Path,
    rules: str | None,
    only_stated: bool,
    shard: Shard | None,
    out: Path | None,
    given: ModelOptions,
    sessions: int | None,
    quiet: bool,
    as_json: bool,
    **request: Any,
) -> int:
    """Cut every trace of a RUN at many positions, ask for the answer at each cut, and record answers and certainties.

    A run can hold several probe sets. If the command is interrupted, run it again: it continues where it stopped.
    """
    from cgr.cli.shared.finish import finish, open_for
    from cgr.lab.record.probe import check_probeable, probe_each, room_for
    from cgr.lab.store import Store
    from cgr.lab.store.config import ALL, ProbeRequest
    from cgr.lab.store.needed_probes import requests_for
    from cgr.settings import options_note
    from cgr.solve import open_model

    refuse_probe_model(given, f"Probe with another model: --model {given.probe_model}")
    on_cluster = tuple(request.pop(name) for name in ("ray", "engines", "gpus_per_engine"))
    own = ProbeRequest(**request)
    if only_stated:
        return _note_stated(run, rules, own, given, as_json)
    if rules is not None and not names_in(rules):
        raise UsageError("--for names no rule.", "Name rules, as in --for deer,dynasor; all: every rule.")
    if rules is not None and own != ProbeRequest(interval=own.interval):
        raise UsageError("With --for, the rules determine the probes.", "Beside --for, use no probe option but --interval.")
    run = _part(run, shard, out)
    with Store.open(run) as store:
        if store.config.shard and not store.made():  # few traces, many shards
            return finish(lambda progress: None, run, None, quiet, as_json)
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
    try:
        model, count = open_for(probed_model, sessions, room, *on_cluster)
    except ModelNotFound as error:
        raise error if given.model else ModelNotFound(error.message, f"Name the model to probe: {NAMED}") from error
    for note in options_note(questions, own.aggregate or config.asking.aggregate, model.engine.capabilities):
        say(f"note:  {note}", err=True)
    work = partial(probe_each, run, requests, model, open_generator=open_model, sessions=count)
    return finish(work, run, None, quiet, as_json)


def _note_stated(run: Path, rules: str | None, own: Any, given: ModelOptions, as_json: bool) -> int:
    from cgr.lab.record.stated import note_stated
    from cgr.lab.store import Store
    from cgr.lab.store.config import ProbeRequest

    if rules is not None or own != ProbeRequest():
        raise UsageError("--stated makes no probes.", "Beside --stated, use no option but those of the model.")
    with Store.open(run) as store:
        config = store.config
    count = note_stated(run, open_given(_probed_model(given, run, config.model), sessions=1, budget=config.budget))
    say(json.dumps({"run": str(run), "noted": count}) if as_json else f"Noted for {count:,} answers where they stand.")
    return 0


def _part(run: Path, shard: Shard | None, out: Path | None) -> Path:
    """The run to probe: with a shard of a whole run, the folder into which its traces are copied."""
    from cgr.lab.store import OtherConfiguration, Store
    from cgr.lab.store.merge import take_shard

    if shard is None:
        if out:
            raise UsageError("--out is for a shard of a run.", "Add --shard, or leave out --out.")
        return run
    if out:
        take_shard(run, shard, out)
        return out
    with Store.open(run) as store:
        own = store.config.shard
    if not own:
        hint = "Add --out FOLDER: the traces of the shard are copied there and probed."
        raise UsageError(f"The run in {run} is a whole run, which only one process can write.", hint)
    if own != str(shard):
        raise OtherConfiguration(f"The run in {run} is shard {own}, not {shard}.", "Give the folder of this shard.")
    return run


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
    from cgr.lab.store.config import NATURAL
    from cgr.lab.store.needed_probes import requests_of, rule_at_interval

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
