"""Option types, checks and parsers that several commands share."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import click

from cgr.errors import UsageError

PATH = click.Path(path_type=Path)
JSON_OPTION = click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object and nothing else.")
QUIET_OPTION = click.option("--quiet", is_flag=True, help="Show no progress and no summary; errors are still shown.")


def names_in(text: str) -> tuple[str, ...]:
    """The names in a list separated by commas or spaces."""
    return tuple(text.replace(",", " ").split())


def numbers_in(text: str) -> tuple[float, ...]:
    """The numbers in a list separated by commas or spaces."""
    try:
        return tuple(map(float, names_in(text)))
    except ValueError as error:
        raise UsageError(f"{text!r} is not a list of numbers.", "Separate numbers with commas: 0.5,0.99.") from error


NAMES: dict[str, Any] = {"type": names_in, "metavar": "TEXT"}
NUMBERS: dict[str, Any] = {"type": numbers_in, "metavar": "TEXT"}
PENALTIES = NUMBERS | {"help": "Penalties for a wrong answer in Grade, separated by commas.  [default: 0,0.25,0.5,1]"}


def chosen(options: dict[str, Any]) -> dict[str, Any]:
    """The options that were given; for the others, the called function has the default."""
    return {name: value for name, value in options.items() if value is not None}


def check_installed(*packages: str) -> None:
    """Raise UsageError if one of these packages, which only the lab needs, is not installed."""
    for package in packages:
        if importlib.util.find_spec(package) is None:
            raise UsageError(f"This command needs {package}.", "pip install 'certainty-guided-reasoning[lab]'")
