"""`cgr rules`: list the stopping rules, or describe one."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator
from dataclasses import fields
from typing import Any, get_args, get_origin, get_type_hints

import click

from cgr.cli.main import say, say_json
from cgr.rules import Rule, Seen, known_rules, make_rule
from cgr.rules.base import rule_class

NEEDS = {
    "logprobs": "the log-probabilities of the probed answers",
    "token_ids": "the token ids of the thinking",
    "thinking_logprobs": "the log-probabilities of the thinking (`cgr generate --logprobs`)",
}
KINDS = {bool: "yes or no", float: "number", int: "whole number", str: "text"}


@click.command("rules")
@click.argument("name", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per rule, with its parameters.")
def command(name: str | None, as_json: bool) -> None:
    """List the stopping rules, one per line, or describe the rule NAME: its parameters, their defaults and limits, what it
    needs, and an example. Rules of installed packages are included."""
    rules = known_rules() if name is None else {name: rule_class(name)}
    width = max(map(len, rules)) + 2
    for one, rule in rules.items():
        if as_json:
            say_json(_entry(one, rule))
        elif name is None:
            say(f"{one:<{width}}{rule.summary()}")
        else:
            say("\n".join(_lines(one, rule)))


def _entry(name: str, rule: type[Rule]) -> dict[str, Any]:
    known = {"name": name, "summary": rule.summary(), "parameters": rule.parameters()}
    return known | {"limits": dict(_limits(rule)), "needs": sorted(rule.needs), "example": _example(rule)}


def _lines(name: str, rule: type[Rule]) -> Iterator[str]:
    yield f"{name}\n"
    yield from inspect.cleandoc(rule.__doc__ or "").splitlines()
    limits = dict(_limits(rule))
    rows = [(one, limits[one], _shown(value) + _note(rule, one)) for one, value in rule.parameters().items()]
    yield "\nParameters:" if rows else "\nIt has no parameters."
    if rows:
        names, values = (max(map(len, column)) for column in list(zip(*rows, strict=True))[:2])
        yield from (f"  {one:<{names}}  {text:<{values}}  {default}" for one, text, default in rows)
    yield f"\nNeeds:    {'; '.join(_needs(rule)) or 'nothing'}"
    yield f"Example:  {_example(rule)}"


def _limits(rule: type[Rule]) -> Iterator[tuple[str, str]]:
    """Each parameter with the values that it may have."""
    hints = get_type_hints(rule)
    for one in fields(rule):
        hint, limits = hints[one.name], str(one.metadata.get("limits") or "")
        if get_origin(hint) is tuple:
            yield one.name, "numbers, which `cgr fit` learns" if rule.learns else "numbers, separated by commas"
            continue
        kinds = get_args(hint) or (hint,)
        kind = next((text for known, text in KINDS.items() if known in kinds), "")
        yield one.name, ", ".join(part for part in (kind, limits) if part)


def _shown(value: object) -> str:
    return "by default not set" if value is None else f"default {json.dumps(value)}"


def _note(rule: type[Rule], parameter: str) -> str:
    if parameter == rule.main:
        return "; it trades tokens for accuracy"
    return ", or the model's own" if parameter == "interval" else ""


def _needs(rule: type[Rule]) -> Iterator[str]:
    yield from (NEEDS.get(need, need) for need in sorted(rule.needs))
    made = make_rule(rule.name)
    if made.forces:
        yield "on a recording: a forced run (`cgr generate --rule budget-forcing --probe`)"
    elif not rule.thinks or made.next_probe(Seen(0)) is not None:
        yield f"on a recording: probes (`cgr probe RUN --for {rule.name}`)"


def _example(rule: type[Rule]) -> str:
    if rule.learns:
        return f"cgr fit RUN --rule {rule.name}, then cgr solve --rule RUN/{rule.name}.json"
    value = rule.parameters().get(rule.main or "")
    chosen = f"--threshold {value}" if rule.main == "threshold" else f"--set {rule.main}={value}" if rule.main else ""
    return f"cgr solve --rule {rule.name} {rule.example or chosen}".rstrip()
