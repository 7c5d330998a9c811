"""`cgr solve`: watch a model think, be asked, become sure, and stop."""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

from cgr import certainty, probing, reason
from cgr.errors import UsageError
from cgr.settings import Settings
from cgr.solve import EMBEDDED, Solution, open_model

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
@click.option("--model", help="A .gguf file or a hub id (ORG/NAME).  [default: the embedded model]")
@click.option("--rule", default=DEFAULTS.rule, show_default=True, help="The stopping rule; see `cgr rules`.")
@click.option("--threshold", type=float, default=DEFAULTS.threshold, show_default=True, help="Sure enough to stop.")
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
@click.option("--overlap", is_flag=True, help="Think on while a probe is in flight.")
@click.option("--full", is_flag=True, help="Decode whole answers, even where a beginning shows it is not sure.")
@click.option("--think-tags", help="The tags of a model that does not name them: '<think>,</think>'.")
@click.option("--threads", type=int, help="Threads to compute with.  [default: half of the cores]")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")
def command(
    question: str | None, model: str | None, think_tags: str | None, threads: int | None, as_json: bool, **options: Any
) -> int:
    """Answer one QUESTION, and stop thinking when sure.

    With `-` the question is read from standard input. Without one, the embedded model takes a problem of its own.
    """
    from cgr.cli.watch import Watcher

    settings = Settings.of(**options)
    text, gold = _question(question, model, settings.seed)
    settings.prompt(text)
    watcher = Watcher(quiet=as_json)
    try:
        with open_model(
            model, overlap=settings.overlap, budget=settings.budget, threads=threads, think_tags=think_tags
        ) as loaded:
            watcher.begin(text, settings.fitted(loaded.engine.info), loaded.engine.info, own=gold is not None)
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


def _question(question: str | None, model: str | None, seed: int) -> tuple[str, str | None]:
    """What to ask, and the true answer where it is the embedded model's own problem."""
    if question == "-":
        return sys.stdin.read(), None
    if question is not None:
        return question, None
    if model not in (None, EMBEDDED):
        raise UsageError("There is no question.", 'Ask one: cgr solve "..." --model ' + str(model))
    from cgr.model.problems import unseen

    problem = next(itertools.islice(unseen(seed), 9 + seed % 9, None))
    return problem.text, str(problem.answer)
