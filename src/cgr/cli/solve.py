"""`cgr solve`: watch a model think, be asked, become sure, and stop."""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

from cgr import certainty, probing, reason
from cgr.cli.shared.model_options import model_options, open_given
from cgr.engines.open import ModelOptions
from cgr.errors import UsageError
from cgr.rules import files as rule_files
from cgr.rules import read_parameters
from cgr.settings import Settings
from cgr.solve import Solution

DEFAULTS = Settings()
F = TypeVar("F", bound=Callable[..., Any])


def _policy(name: str, what: str) -> Callable[[F], F]:
    return click.option(
        name,
        type=click.Choice(reason.POLICIES),
        default="answer",
        show_default=True,
        help=f"What to do {what}, unsure.",
    )


@click.command("solve")
@click.argument("question", required=False)
@click.option("--rule", default=DEFAULTS.rule, show_default=True, help="A rule (`cgr rules`), or a file of `cgr fit`.")
@click.option("--threshold", type=float, help="Sure enough to stop.  [default: 0.99, or the rule's own]")
@click.option("--set", "given_parameters", multiple=True, help="A parameter of the rule: --set agree=5; see `cgr rules`.")
@click.option("--interval", type=int, help="Thinking tokens between probes.  [default: 1000, or what fits the model]")
@click.option("--budget", type=int, help="Thinking tokens at most.  [default: 32000, or what fits the model]")
@click.option("--max-answer-tokens", type=int, help="Tokens of an answer at most.  [default: 32, or the model's own]")
@click.option(
    "--aggregate", default=DEFAULTS.aggregate, show_default=True, help=f"One of {', '.join(certainty.AGGREGATES)}."
)
@click.option("--temperature", type=float, default=DEFAULTS.temperature, show_default=True, help="0 is greedy.")
@click.option("--top-p", type=float, default=DEFAULTS.top_p, show_default=True, help="Keep this share of probability.")
@click.option("--seed", type=int, default=DEFAULTS.seed, show_default=True, help="The same seed, the same thinking.")
@_policy("--at-budget", "when the budget is spent")
@_policy("--at-end-of-thinking", "when the model ends its thinking")
@click.option("--prefix", default=DEFAULTS.prefix, show_default=True, help="What a probe appends.")
@click.option(
    "--close-think",
    type=click.Choice(probing.CLOSE_THINK),
    default=DEFAULTS.close_think,
    show_default=True,
    help="Whether the end tag goes before the prefix; auto: only before the final answer.",
)
@click.option(
    "--overlap/--no-overlap", default=None, help="Think on while a probe is in flight.  [default: on servers only]"
)
@click.option("--full", is_flag=True, help="Decode whole answers, even where a beginning shows it is not sure.")
@model_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")
def command(
    question: str | None, given: ModelOptions, given_parameters: tuple[str, ...], as_json: bool, **options: Any
) -> int:
    """Answer one QUESTION, and stop thinking when sure.

    With `-` the question is read from standard input. Without one, the embedded model takes a problem of its own.
    """
    from cgr.cli.shared.live import Watcher

    options["rule"], fitted = rule_files.named(options["rule"])
    options["parameters"] = {**fitted, **read_parameters(options["rule"], given_parameters)}
    settings = Settings.of(**options)
    text, gold = _question(question, given, settings.seed)
    settings.prompt(text)
    watcher = Watcher(quiet=as_json)
    try:
        with open_given(given, overlap=settings.overlap, budget=settings.budget) as loaded:
            watcher.begin(text, settings.resolve(loaded.engine.info), loaded.engine.info, own=gold is not None)
            solution = loaded.solve(text, on_event=watcher.see, **options)
    except KeyboardInterrupt:
        watcher.interrupted()
        return 130
    _show(solution, watcher, gold, as_json)
    return 0


def _show(solution: Solution, watcher: Any, gold: str | None, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(solution.summary(), ensure_ascii=False))
    else:
        watcher.end(solution, gold)


def _question(question: str | None, given: ModelOptions, seed: int) -> tuple[str, str | None]:
    """What to ask, and the true answer where it is the embedded model's own problem."""
    if question == "-":
        return sys.stdin.read(), None
    if question is not None:
        return question, None
    if not given.embedded:
        raise UsageError("There is no question.", f'Ask one: cgr solve "..." --model {given.model or "NAME"}')
    from cgr.model.problems import unseen

    problem = next(itertools.islice(unseen(seed), 9 + seed % 9, None))
    return problem.text, str(problem.answer)
