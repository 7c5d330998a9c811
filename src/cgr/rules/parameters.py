"""Parameters of a rule as a user types them."""

from __future__ import annotations

import typing
from collections.abc import Iterable
from typing import Any

from cgr.errors import UnknownName, UsageError
from cgr.rules.base import rule_class


def read_parameters(name: str, given: Iterable[str]) -> dict[str, Any]:
    """Parameters of a rule from texts such as `agree=5`, as values of the right type."""
    cls = rule_class(name)
    hints, found = typing.get_type_hints(cls), {}
    for one in given:
        key, equals, text = one.partition("=")
        if not (key and equals):
            raise UsageError(f"{one!r} sets nothing.", "Write it as in --set agree=5.")
        if key not in cls.parameters():
            raise UnknownName.among(f"parameter of {name}", key, cls.parameters())
        found[key] = _line_breaks(text) if hints[key] is str else _parse(f"{key} of {name}", hints[key], text.strip())
    return found


def _line_breaks(text: str) -> str:
    """Text as it was typed: in a shell it is easiest to write a line break as `\\n`."""
    return text.replace("\\n", "\n")


def _parse(what: str, hint: Any, text: str) -> Any:
    """The value of a parameter with this type hint; a tuple is written with commas."""
    origin, kinds = typing.get_origin(hint), typing.get_args(hint) or (hint,)
    number = _yes_or_no if bool in kinds else float if float in kinds else int if int in kinds else str
    try:
        return tuple(map(number, text.split(","))) if origin is tuple else number(text)
    except ValueError as error:
        kind = "number" if number is float else "whole number" if number is int else "yes or no"
        raise UsageError(f"The {what} is a {kind}, not {text!r}.", "Write it as in --set agree=5.") from error


def _yes_or_no(text: str) -> bool:
    return ("no", "yes").index({"false": "no", "true": "yes"}.get(text.lower(), text.lower())) == 1
