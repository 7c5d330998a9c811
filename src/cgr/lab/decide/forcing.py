"""A rule that forces the thinking to continue needs a run that was forced in the same way. On such a run every other rule
decides when to stop inside the forced thinking."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from cgr.errors import NotRecorded
from cgr.lab.store.config import NATURAL, RunConfig
from cgr.rules import Rule
from cgr.rules.forced_thinking import keep_thinking


def as_forced(rule: Rule, config: RunConfig, folder: Path) -> Rule:
    """The rule as it decides on this run. On a forced run: with its text and its limit where the rule has the defaults, and
    forced in the same way if the rule itself forces nothing. `NotRecorded` if the run was not recorded for the rule."""
    if config.rule == NATURAL:
        return _natural(rule)
    if not rule.forces:
        return keep_thinking(rule, config.forced_text, config.forced_at_most)
    recorded, usual = {"text": config.forced_text, "at_most": config.forced_at_most}, rule.parameters()
    if not recorded.keys() <= usual.keys():
        return rule
    found = replace(rule, **{name: value for name, value in recorded.items() if getattr(rule, name) == usual[name]})
    if {name: getattr(found, name) for name in recorded} != recorded:
        often = "without a limit" if config.forced_at_most is None else f"at most {config.forced_at_most} times"
        raise NotRecorded(
            f"The thinking in {folder} was forced to go on with {config.forced_text!r}, {often}.",
            "Leave out text and at_most, or record another run.",
        )
    return found


def _natural(rule: Rule) -> Rule:
    if rule.forces:
        raise NotRecorded(
            f"The rule {rule.name!r} forces the model to keep thinking; the traces of this run were not forced.",
            "Record a forced run: cgr generate --rule budget-forcing --probe ...",
        )
    return rule
