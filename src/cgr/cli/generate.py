"""`cgr generate`: record full thinking traces for every question and seed."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, get_args

import click

from cgr.cli.main import say
from cgr.cli.shared.options import (
    AGGREGATE,
    JSON_OPTION,
    PATH,
    QUIET_OPTION,
    SESSIONS,
    model_options,
    open_given,
    refuse_probe_model,
    settings_options,
)
from cgr.engines.open import ModelOptions
from cgr.errors import UsageError
from cgr.records import AnswerFormat
from cgr.settings import Settings

RULES = ("fixed-budget", "budget-forcing", "cgr-forced")


def _read_fields(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    """The values of --field, each `name=field`, as a mapping."""
    pairs = [value.partition("=") for value in values]
    for name, equals, field in pairs:
        if not (name and equals and field):
            raise UsageError(f"{name + equals + field!r} does not name a field.", "Write it as in --field gold=answer.")
    return {name: field for name, _, field in pairs}


@click.command("generate")
@click.option("--questions", "source", required=True, help="A question source (aime2025, arithmetic, ...) or a file.")
@click.option("--out", type=PATH, required=True, help="Folder of the run, such as runs/NAME.")
@click.option("--limit", type=int, help="Use only the first LIMIT questions.")
@click.option("--field", "fields", multiple=True, callback=_read_fields, metavar="NAME=FIELD",
              help="Name of a field in a question file, such as gold=answer; may be repeated.")  # fmt: skip
@click.option("--format", type=click.Choice(get_args(AnswerFormat)), help="How the answers of a file are checked.")
@click.option("--allow-missing-golds", is_flag=True, help="Accept questions without a correct answer in a file.")
@click.option("--question-seed", "seed", default=0, show_default=True, help="Seed of sources that generate questions.")
@click.option("--seeds", type=int, default=64, show_default=True, help="Traces per question.")
@settings_options("budget", "temperature", "top_p")
@click.option("--probe", is_flag=True, help="Probe every --interval tokens while the traces are generated.")
@settings_options("interval")
@click.option("--rule", type=click.Choice(RULES), default=RULES[0], show_default=True,
              help="fixed-budget lets the model end its thinking; the other rules force it to continue.")  # fmt: skip
@click.option("--logprobs", is_flag=True, help="Record the log-probabilities of the thinking tokens.")
@click.option("--written-tokens", type=int, default=1024, show_default=True,
              help="Maximum tokens of the text that the model writes after its thinking.")  # fmt: skip
@settings_options("prefix", "close_think")
@settings_options("max_answer_tokens",
                  help="Maximum tokens of an answer.  [default: the model's own, or 4 for integers, else 32]")  # fmt: skip
@settings_options("aggregate", help=f"{AGGREGATE}  [default: options for choice questions, else min]")
@settings_options("instruction")
@click.option("--sessions", type=int, help=SESSIONS)
@model_options
@QUIET_OPTION
@JSON_OPTION
def command(
    source: str, out: Path, given: ModelOptions, sessions: int | None, quiet: bool, as_json: bool, **options: Any
) -> int:
    """Record full thinking traces for every question and seed, until the model ends its thinking or the budget is spent.

    If the command is interrupted, run it again: it continues where it stopped. Failed traces are listed, and the next call
    tries them again.
    """
    from cgr.cli.shared.finish import finish, sessions_for
    from cgr.lab.questions import load_questions
    from cgr.lab.record.generate import Plan, generate

    for_questions = {name: options.pop(name) for name in ("limit", "fields", "format", "allow_missing_golds", "seed")}
    for_plan = {name: options.pop(name) for name in ("seeds", "probe", "logprobs", "written_tokens")}
    settings = Settings.of(**options)
    plan = Plan(load_questions(source, **for_questions), settings=settings, source=source, **for_plan)
    if not plan.probe:
        refuse_probe_model(given, "Add --probe, or leave out --probe-model.")
    count = sessions_for(sessions, given)
    loaded = open_given(given, sessions=count, budget=settings.budget)
    for note in plan.notes(loaded.engine.capabilities):
        say(f"note:  {note}", err=True)
    return finish(partial(generate, out, plan, loaded, sessions=count), out, plan.wanted(), quiet, as_json)
