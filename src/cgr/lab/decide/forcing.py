"""A rule that forces the thinking to continue needs a run that was forced in the same way; others need a natural run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from cgr.errors import NotRecorded
from cgr.lab.store.config import NATURAL, RunConfig
from cgr.rules import Rule


def as_forced(rule: Rule, config: RunConfig, folder: Path) -> Rule:
    """The rule, with the text and the limit of a forced run where it has its defaults; `NotRecorded` if the run was not
    recorded for it."""
    _check(rule, config, folder)
    recorded, usual = {"text": config.forced_text, "at_most": config.forced_at_most}, rule.parameters()
    if config.rule == NATURAL or not recorded.keys() <= usual.keys():
        return rule
    found = replace(rule, **{name: value for name, value in recorded.items() if getattr(rule, name) == usual[name]})
    if {name: getattr(found, name) for name in recorded} != recorded:
        often = "without a limit" if config.forced_at_most is None else f"at most {config.forced_at_most} times"
        raise NotRecorded(
            f"The thinking in {folder} was forced to go on with {config.forced_text!r}, {often}.",
            "Leave out text and at_most, or record another run.",
        )
    return found


def _check(rule: Rule, config: RunConfig, folder: Path) -> None:
    forced = config.rule != NATURAL
    if not forced and rule.forces:
        raise NotRecorded(
            f"The rule {rule.name!r} forces the model to keep thinking; the traces of this run were not forced.",
            "Record a forced run: cgr generate --rule budget-forcing --probe ...",
        )
    if forced and not rule.forces:
        raise NotRecorded(
            f"The rule {rule.name!r} lets thinking end; the traces in {folder} were forced to go on.",
            "Use a run that was not forced.",
        )
