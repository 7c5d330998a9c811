"""Time saved live: the same questions with and without early stopping, in turn, on one model.

    python -m benchmarks.live --model FILE.gguf --think-tags '<think>,</think>' --questions gsm8k:FILE.jsonl --skip 150

For each question and the same seed: once to the natural end or the budget (`--plain`, without probes), once with a rule.
Which of the two comes first alternates. After an interruption (Ctrl-C) the table shows the questions so far.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from statistics import mean
from time import monotonic
from typing import Any

import click
import numpy as np

from cgr import Model, Solution, open_model
from cgr.errors import CgrError
from cgr.lab.grading import is_right
from cgr.lab.output import Head, Table
from cgr.lab.questions import Question, load_questions
from cgr.lab.score.bootstrap import of_ratio
from cgr.rules.same_answer import same_answer

HEADS = (
    Head("way", "Rule"),
    Head("right", "Right"),
    Head("thinking", "Thinking", ".1f"),
    Head("probes", "Probe tokens", ".1f"),
    Head("seconds", "Seconds", ".1f"),
    Head("share", "Of the time", ".1f", 100, "%"),
)


@dataclass(frozen=True)
class Solved:
    """One question answered in one way. `seconds`: from the question to the answer."""

    right: bool
    answer: str | None
    stop_cause: str
    thinking_tokens: int
    probe_tokens: int
    seconds: float


@dataclass(frozen=True)
class Pair:
    """One question answered in both ways. `same`: the two answers are equal."""

    question: str
    plain: Solved
    rule: Solved
    same: bool


def solved(model: Model, question: Question, options: dict[str, Any]) -> Solved:
    """One question answered in one way."""
    start = monotonic()
    found: Solution = model.solve(question.text, **options)
    seconds = monotonic() - start
    right = found.closed and bool(found.answer) and is_right(str(found.answer), str(question.gold), question.format)
    return Solved(right, found.answer, found.stop_cause, found.thinking_tokens, found.probe_tokens, seconds)


def pairs(model: Model, questions: Sequence[Question], options: dict[str, Any], ways: Sequence[str]) -> Iterator[Pair]:
    """Each question in both ways; the first one alternates."""
    for number, question in enumerate(questions):
        made: dict[str, Solved] = {}
        for way in ways if number % 2 else reversed(ways):
            made[way] = solved(model, question, {**options, "rule": way})
        plain, rule = (made[way] for way in ways)
        same = plain.answer is not None and rule.answer is not None and same_answer(plain.answer, rule.answer)
        yield Pair(question.id, plain, rule, same)


def table(found: Sequence[Pair], ways: Sequence[str]) -> Table:
    """The means of both ways, and the time of each as a share of the time of the plain way."""
    rows = []
    for way, made in zip(ways, ([one.plain for one in found], [one.rule for one in found]), strict=True):
        share = sum(one.seconds for one in made) / sum(one.plain.seconds for one in found)
        numbers = (mean(one.thinking_tokens for one in made), mean(one.probe_tokens for one in made))
        right = f"{sum(one.right for one in made)} of {len(made)}"
        rows.append((way, right, *numbers, mean(one.seconds for one in made), share))
    return Table("live", f"{len(found)} questions answered live in two ways", HEADS, tuple(rows))


def sentences(found: Sequence[Pair]) -> Iterator[str]:
    """What the table does not say: how far the time is known, and what probes cost where they never stop the thinking."""
    yield f"The same answer both ways: {sum(one.same for one in found)} of {len(found)}."
    with_rule, without = (np.array([getattr(one, way).seconds for one in found]) for way in ("rule", "plain"))
    if ends := of_ratio(with_rule, without):
        share = with_rule.sum() / without.sum()
        yield f"Time with the rule: {share:.1%} of that without (95% interval {ends[0]:.1%} to {ends[1]:.1%})."
    full = [one for one in found if one.rule.thinking_tokens >= one.plain.thinking_tokens]
    if full:
        times = sum(one.rule.seconds for one in full) / sum(one.plain.seconds for one in full)
        yield f"Questions on which the rule saved nothing: {len(full)}; their probes made them {times:.2f} times as long."


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="embedded")
    parser.add_argument("--think-tags")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--chunk", type=int, help="think in requests of this many tokens instead of one stream (servers)")
    parser.add_argument("--no-overlap", action="store_false", dest="overlap", default=None, help="wait for each probe")
    parser.add_argument("--questions", default="arithmetic")
    parser.add_argument("--skip", type=int, default=0, help="leave out the first questions, which a choice was made on")
    parser.add_argument("--limit", type=int, default=30)
    parser.add_argument("--budget", type=int)
    parser.add_argument("--interval", type=int)
    parser.add_argument("--threshold", type=float, default=0.99)
    parser.add_argument("--plain", default="fixed-budget", help="the rule without early stopping")
    parser.add_argument("--rule", default="cgr")
    parser.add_argument("--json", action="store_true", help="print one JSON object with every question")
    return parser.parse_args()


def main() -> None:
    """Answer the questions and print the table."""
    given = arguments()
    ways = (given.plain, given.rule)
    names = ("budget", "interval", "threshold", "overlap")
    options = {name: getattr(given, name) for name in names if getattr(given, name) is not None}
    found: list[Pair] = []
    try:
        questions = load_questions(given.questions, limit=given.skip + given.limit)[given.skip :]
        opened = open_model(given.model, think_tags=given.think_tags, threads=given.threads, chunk=given.chunk)
        with opened as model, suppress(KeyboardInterrupt):
            for pair in pairs(model, questions, options, ways):
                found.append(pair)
                times = f"{pair.plain.seconds:.1f} s without, {pair.rule.seconds:.1f} s with {given.rule}"
                click.echo(f"{len(found)} of {len(questions)}: {times}", err=True)
    except CgrError as error:
        click.echo(f"error: {error.message}\nhint:  {error.hint}", err=True)
        sys.exit(2)
    if not found:
        return
    if given.json:
        click.echo(json.dumps([asdict(one) for one in found]))
        return
    click.echo("\n".join([*table(found, ways).lines(), *sentences(found)]))


if __name__ == "__main__":
    main()
