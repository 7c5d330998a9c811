"""`cgr rules`: list the stopping rules."""

from __future__ import annotations

import click

from cgr.cli.main import say, say_json
from cgr.rules import known_rules


@click.command("rules")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per rule, with its parameters.")
def command(as_json: bool) -> None:
    """List the stopping rules, one per line. Rules of installed packages are included."""
    rules = known_rules()
    width = max(map(len, rules)) + 2
    for name, rule in rules.items():
        if as_json:
            entry = {"name": name, "summary": rule.summary(), "parameters": rule.parameters()}
            say_json(entry)
        else:
            say(f"{name:<{width}}{rule.summary()}")
