"""`cgr generate`: full thinking traces for every question and seed."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import click

from cgr import certainty, probing
from cgr.cli.shared.model_options import SESSIONS, model_options, open_given, refuse_probe_model
from cgr.engines.open import ModelOptions
from cgr.errors import UsageError
from cgr.records import AnswerFormat
from cgr.settings import Settings

DEFAULTS = Settings()
RULES = ("fixed-budget", "budget-forcing", "cgr-forced")


def read_fields(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    """`gold=answer` as a mapping."""
    pairs = [value.partition("=") for value in values]
    for name, equals, field in pairs:
        if not (name and equals and field):
            raise UsageError(f"{name + equals + field!r} does not name a field.", "Write it as in --field gold=answer.")
    return {name: field for name, _, field in pairs}


@click.command("generate")
@click.option("--questions", "source", required=True, help="A named source (aime2025, arithmetic, ...) or a file.")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="The run's folder, such as runs/NAME.")
@click.option("--limit", type=int, help="The first so many questions only.")
@click.option("--field", "fields", multiple=True, callback=read_fields, help="What a file calls a field: gold=answer.")
@click.option("--format", "form", type=click.Choice(get_args(AnswerFormat)), help="How a file's answers are checked.")
@click.option("--allow-missing-golds", is_flag=True, help="Take questions of a file whose answer is not known.")
@click.option("--question-seed", type=int, default=0, show_default=True, help="For sources that make up their questions.")
@click.option("--seeds", type=int, default=64, show_default=True, help="Traces for each question.")
@click.option("--budget", type=int, help="Thinking tokens at most.  [default: 32000, or what fits the model]")
@click.option("--temperature", type=float, default=DEFAULTS.temperature, show_default=True, help="0 is greedy.")
@click.option("--top-p", type=float, default=DEFAULTS.top_p, show_default=True, help="Keep this share of probability.")
@click.option("--probe", is_flag=True, help="Record probes on the way, every --interval tokens.")
@click.option("--interval", type=int, help="Thinking tokens between probes.  [default: 1000, or what fits the model]")
@click.option("--rule", type=click.Choice(RULES), default=RULES[0], show_default=True,
              help="Let the thinking end by itself, or force it on to the budget.")  # fmt: skip
@click.option("--logprobs", is_flag=True, help="Record the log-probabilities of the thinking.")
@click.option("--written-tokens", type=int, default=1024, show_default=True, help="What a model may write after it ended.")
@click.option("--prefix", default=DEFAULTS.prefix, show_default=True, help="What asks for an answer.")
@click.option("--close-think", type=click.Choice(probing.CLOSE_THINK), default=DEFAULTS.close_think, show_default=True,
              help="Whether the end tag goes before the prefix; auto: only before the final answer.")  # fmt: skip
@click.option(
    "--max-answer-tokens", type=int, help="Tokens of an answer at most.  [default: the model's own, else 4 or 32]"
)
@click.option("--aggregate", default=DEFAULTS.aggregate, show_default=True, help=f"Of {', '.join(certainty.AGGREGATES)}.")
@click.option("--instruction", default=DEFAULTS.instruction, show_default=True, help="What follows each question.")
@click.option("--sessions", type=int, help=SESSIONS)
@model_options
@click.option("--quiet", is_flag=True, help="Show no progress and no summary.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object at the end and nothing else.")
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
    """Make full thinking traces: every question, every seed, to the end of thinking or of the budget.

    Interrupted at any moment, the same command goes on where it stopped. What fails is listed, and tried again by the next
    call.
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
        refuse_probe_model(given, "Add --probe, or leave it out.")
    plan = Plan(questions, seeds, settings, source, probe, logprobs, written_tokens)
    at_once = sessions_for(sessions, given)
    progress = Progress(quiet=quiet or as_json)
    loaded = open_given(given, sessions=at_once, budget=settings.budget)
    return finish(
        lambda: generate(out, plan, loaded, sessions=at_once, progress=progress),
        out,
        plan.wanted(),
        progress,
        quiet,
        as_json,
    )
