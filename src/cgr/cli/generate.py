"""`cgr generate`: record full thinking traces for every question and seed."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, get_args

import click

from cgr.cli.shared import settings_options as option
from cgr.cli.shared.arguments import JSON_OPTION, PATH, QUIET_OPTION
from cgr.cli.shared.model_options import SESSIONS, model_options, open_given, refuse_probe_model
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
@click.option("--field", "fields", multiple=True, callback=_read_fields,
              help="Name of a field in a question file, such as gold=answer; may be repeated.")  # fmt: skip
@click.option("--format", "form", type=click.Choice(get_args(AnswerFormat)), help="How the answers of a file are checked.")
@click.option("--allow-missing-golds", is_flag=True, help="Accept questions without a correct answer in a file.")
@click.option("--question-seed", type=int, default=0, show_default=True, help="Seed of sources that generate questions.")
@click.option("--seeds", type=int, default=64, show_default=True, help="Traces per question.")
@option.BUDGET
@option.TEMPERATURE
@option.TOP_P
@click.option("--probe", is_flag=True, help="Probe every --interval tokens while the traces are generated.")
@option.INTERVAL
@click.option("--rule", type=click.Choice(RULES), default=RULES[0], show_default=True,
              help="fixed-budget lets the model end its thinking; the other rules force it to continue.")  # fmt: skip
@click.option("--logprobs", is_flag=True, help="Record the log-probabilities of the thinking tokens.")
@click.option("--written-tokens", type=int, default=1024, show_default=True,
              help="Maximum tokens of the text that the model writes after its thinking.")  # fmt: skip
@option.PREFIX
@option.CLOSE_THINK
@click.option("--max-answer-tokens", type=int,
              help="Maximum tokens of an answer.  [default: the model's own, or 4 for integers, else 32]")  # fmt: skip
@option.AGGREGATE
@click.option("--instruction", default=option.DEFAULTS.instruction, show_default=True, help="Text after each question.")
@click.option("--sessions", type=int, help=SESSIONS)
@model_options
@QUIET_OPTION
@JSON_OPTION
def command(
    source: str,
    out: Path,
    limit: int | None,
    fields: dict[str, str],
    form: AnswerFormat | None,
    allow_missing_golds: bool,
    question_seed: int,
    seeds: int,
    given: ModelOptions,
    probe: bool,
    rule: str,
    logprobs: bool,
    written_tokens: int,
    sessions: int | None,
    quiet: bool,
    as_json: bool,
    **options: Any,
) -> int:
    """Record full thinking traces for every question and seed, until the model ends its thinking or the budget is spent.

    If the command is interrupted, run it again: it continues where it stopped. Failed traces are listed, and the next call
    tries them again.
    """
    from cgr.cli.shared.finish import finish, sessions_for
    from cgr.lab.questions import load_questions
    from cgr.lab.record.generate import Plan, generate
    from cgr.lab.record.jobs import Progress

    settings = Settings.of(rule=rule, **options)
    questions = load_questions(
        source, limit=limit, fields=fields, seed=question_seed, format=form, allow_missing_golds=allow_missing_golds
    )
    if not probe:
        refuse_probe_model(given, "Add --probe, or leave out --probe-model.")
    plan = Plan(questions, seeds, settings, source, probe, logprobs, written_tokens)
    session_count = sessions_for(sessions, given)
    progress = Progress(quiet=quiet or as_json)
    loaded = open_given(given, sessions=session_count, budget=settings.budget)
    work = partial(generate, out, plan, loaded, sessions=session_count, progress=progress)
    return finish(work, out, plan.wanted(), progress, quiet, as_json)
