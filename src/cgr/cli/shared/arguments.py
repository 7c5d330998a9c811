"""Option types, checks and parsers that several commands share."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from cgr.errors import UsageError


class FilePath(click.Path):
    """A path. An empty text is refused: it would be the working folder."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not str(value):
            self.fail("A path cannot be empty.", param, ctx)
        return super().convert(value, param, ctx)


class ProbesCommand(click.Command):
    """A command with the option --probes, under its former names too, which print a note."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        own = {name for parameter in self.params for name in parameter.opts}
        former = [name for name in FORMER_NAMES if name not in own]
        return super().parse_args(ctx, [_renamed(one, former) for one in args])


def _renamed(argument: str, former: Sequence[str]) -> str:
    name, equals, value = argument.partition("=")
    if name not in former:
        return argument
    click.echo(f"note:  {name} for a probe set is now called {PROBES}.", err=True)
    return PROBES + equals + value


PATH = FilePath(path_type=Path)
PROBES, FORMER_NAMES = "--probes", ("--set", "--probe-set")
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
