"""`cgr solve`: answer one question and show the thinking, the probes and the stop."""

from __future__ import annotations

import itertools
import json
import sys
from typing import Any

import click

from cgr import reason
from cgr.cli.shared import settings_options as option
from cgr.cli.shared.arguments import JSON_OPTION
from cgr.cli.shared.model_options import model_options, open_given
from cgr.engines.open import ModelOptions
from cgr.errors import UsageError
from cgr.rules import read_parameters
from cgr.settings import Settings

POLICY: dict[str, Any] = {"type": click.Choice(reason.POLICIES), "default": "answer", "show_default": True}


@click.command("solve")
@click.argument("question", required=False)
@click.option("--rule", default=option.DEFAULTS.rule, show_default=True,
              help="The stopping rule: a name (see `cgr rules`) or a file written by `cgr fit`.")  # fmt: skip
@click.option("--threshold", type=float, help="Certainty from which to stop.  [default: 0.99, or the rule's own]")
@click.option("--set", "given_parameters", multiple=True,
              help="A parameter of the rule, such as --set agree=5; may be repeated.")  # fmt: skip
@option.INTERVAL
@option.BUDGET
@click.option("--max-answer-tokens", type=int,
              help="Maximum tokens of a probed answer.  [default: 32, or the model's own]")  # fmt: skip
@option.AGGREGATE
@option.TEMPERATURE
@option.TOP_P
@click.option("--seed", type=int, default=option.DEFAULTS.seed, show_default=True, help="Random seed of the thinking.")
@click.option("--at-budget", **POLICY, help="What to do if the budget is spent and the model is not certain.")
@click.option("--at-end-of-thinking", **POLICY, help="What to do if the model ends its thinking and is not certain.")
@option.PREFIX
@option.CLOSE_THINK
@click.option("--overlap/--no-overlap", default=None,
              help="Continue thinking while a probe is running.  [default: only on servers]")  # fmt: skip
@click.option("--full", is_flag=True, help="Decode every answer to its end, even if its first tokens are not certain.")
@model_options
@JSON_OPTION
def command(
    question: str | None, given: ModelOptions, given_parameters: tuple[str, ...], as_json: bool, **options: Any
) -> int:
    """Answer one QUESTION and stop thinking when the model is certain.

    With `-`, the question is read from standard input. Without a QUESTION, the embedded model solves one of its arithmetic
    problems.
    """
    from cgr.cli.shared.live import LiveDisplay

    options["rule"], options["parameters"] = _rule_and_parameters(options["rule"], given_parameters)
    settings = Settings.of(**options)
    text, gold = _question(question, given, settings.seed)
    settings.prompt(text)
    display = LiveDisplay(quiet=as_json)
    try:
        with open_given(given, overlap=settings.overlap, budget=settings.budget) as loaded:
            display.begin(text, settings.resolve(loaded.engine.info), loaded.engine.info, own_problem=gold is not None)
            solution = loaded.solve(text, on_event=display.show, **options)
    except KeyboardInterrupt:
        display.interrupted()
        return 130
    if as_json:
        click.echo(json.dumps(solution.summary(), ensure_ascii=False))
    else:
        display.end(solution, gold)
    return 0


def _rule_and_parameters(name: str, given: tuple[str, ...]) -> tuple[str, dict[str, Any]]:
    """The name of the rule and its parameters: those of --set, after those of the file if `name` is a rule file."""
    if not name.endswith(".json"):
        return name, read_parameters(name, given) if given else {}
    from cgr.rules import files as rule_files

    rule, fitted = rule_files.named(name)
    return rule, {**fitted, **read_parameters(rule, given)}


def _question(question: str | None, given: ModelOptions, seed: int) -> tuple[str, str | None]:
    """The question, and its correct answer if it is a problem of the embedded model."""
    if question == "-":
        return sys.stdin.read(), None
    if question is not None:
        return question, None
    if not given.embedded:
        raise UsageError("There is no question.", f'Ask one: cgr solve "..." --model {given.model or "NAME"}')
    from cgr.model.problems import unseen

    problem = next(itertools.islice(unseen(seed), 9 + seed % 9, None))
    return problem.text, str(problem.answer)
