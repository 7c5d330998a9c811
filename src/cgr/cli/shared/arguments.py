"""Option types, checks and parsers that several commands share."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import click

from cgr.errors import UsageError

PATH = click.Path(path_type=Path)
JSON_OPTION = click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object and nothing else.")
QUIET_OPTION = click.option("--quiet", is_flag=True, help="Show no progress and no summary; errors are still shown.")
PENALTIES_HELP = "Penalties for a wrong answer in Grade, separated by commas.  [default: 0,0.25,0.5,1]"


def names_in(text: str | None) -> list[str] | None:
    """The names in a list separated by commas or spaces; None if the option was not given."""
    return None if text is None else text.replace(",", " ").split()


def numbers_in(text: str | None) -> tuple[float, ...] | None:
    """The numbers in a list separated by commas or spaces; None if the option was not given."""
    if text is None:
        return None
    try:
        return tuple(float(part) for part in text.replace(",", " ").split())
    except ValueError as error:
        raise UsageError(f"{text!r} is not a list of numbers.", "Separate numbers with commas: 0.5,0.99.") from error


def check_installed(*packages: str) -> None:
    """Raise UsageError if one of these packages, which only the lab needs, is not installed."""
    for package in packages:
        if importlib.util.find_spec(package) is None:
            raise UsageError(f"This command needs {package}.", "pip install 'certainty-guided-reasoning[lab]'")
