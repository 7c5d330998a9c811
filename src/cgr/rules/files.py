"""A rule with its parameters as a JSON file; `cgr fit` writes it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from cgr.errors import UsageError
from cgr.files import write_text
from cgr.rules.base import Rule, make_rule

SUFFIX = ".json"
LEFT_OUT = "interval"  # it depends on the model or on the user's choice


@dataclass(frozen=True, slots=True)
class RuleFile:
    """The name of a rule and its parameters. `fitted` says what they were learned from; nothing depends on it."""

    rule: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    fitted: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raise `TypeError` if a file holds something else."""
        if not (isinstance(self.rule, str) and isinstance(self.parameters, Mapping) and isinstance(self.fitted, Mapping)):
            raise TypeError("not a rule")

    @classmethod
    def of(cls, rule: Rule, **fitted: Any) -> RuleFile:
        """The file of this rule, without its interval."""
        parameters = {one.name: getattr(rule, one.name) for one in fields(rule) if one.name != LEFT_OUT}
        return cls(rule.name, parameters, fitted)

    def made(self, **more: Any) -> Rule:
        """The rule; `more`: parameters that replace those of the file."""
        return make_rule(self.rule, **{**self.parameters, **more})

    def write(self, path: Path) -> None:
        """Write the file; its folder is created if needed."""
        text = {"rule": self.rule, "parameters": dict(self.parameters), "fitted": dict(self.fitted)}
        write_text(path, json.dumps(text, indent=2) + "\n")


def is_file(name: str) -> bool:
    """Whether this names a file and not a rule."""
    return name.endswith(SUFFIX)


def named(name: str) -> tuple[str, dict[str, Any]]:
    """The name of a rule and its parameters: those of the file, if `name` is a file."""
    if not is_file(name):
        return name, {}
    found = read(name)
    return found.rule, dict(found.parameters)


def read(path: str | Path) -> RuleFile:
    """The rule in this file; its parameters are checked."""
    try:
        file = RuleFile(**json.loads(Path(path).read_text(encoding="utf-8")))
    except OSError as error:
        raise UsageError(
            f"The rule in {str(path)!r} cannot be read: {error.strerror}.", "Write one with `cgr fit`."
        ) from error
    except (TypeError, ValueError) as error:
        raise UsageError(
            f"{str(path)!r} holds no rule.",
            'It must look like {"rule": "calibrated", "parameters": {...}}, as `cgr fit` writes.',
        ) from error
    try:
        file.made()
    except (TypeError, ValueError) as error:
        raise UsageError(
            f"The parameters in {str(path)!r} do not suit the rule {file.rule!r}.", "Fit it again: cgr fit."
        ) from error
    return file
