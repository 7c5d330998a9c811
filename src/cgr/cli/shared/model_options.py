"""The command-line options that choose a model, the same for every command that needs one.

They are made from the fields of `ModelOptions`, so that a new option is one new field there.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import Field, fields, replace
from typing import TYPE_CHECKING, Any, TypeVar

import click

from cgr.engines.open import ModelOptions
from cgr.errors import UsageError

if TYPE_CHECKING:
    from cgr.solve import Model

F = TypeVar("F", bound=Callable[..., Any])
SESSIONS = "Traces in flight.  [default: 8 for the embedded model, 16 for each server, else 1]"
ON_COMMAND_LINE = tuple(one for one in fields(ModelOptions) if "help" in one.metadata)


def model_options(function: F) -> F:
    """Add the options to a command, which gets them as one argument, `given`."""

    @functools.wraps(function)
    def command(**options: Any) -> Any:
        chosen = {one.name: options.pop(one.name) for one in ON_COMMAND_LINE}
        return function(given=ModelOptions(**chosen), **options)

    for one in reversed(ON_COMMAND_LINE):
        command = _option(one)(command)
    return command  # type: ignore[return-value]


def _option(one: Field[Any]) -> Callable[[Any], Any]:
    hint = str(one.type)
    return click.option(
        f"--{one.name.replace('_', '-')}",
        type=int if hint.startswith("int") else str,
        multiple=hint.startswith("tuple"),
        metavar=one.metadata["metavar"],
        help=one.metadata["help"],
    )


def refuse_probe_model(given: ModelOptions, hint: str) -> None:
    """An error if a second model is named where nothing is probed."""
    if given.probe_model:
        raise UsageError("Nothing is probed here, so --probe-model has no use.", hint)


def open_given(given: ModelOptions, *, sessions: int = 1, overlap: bool | None = None, budget: int | None = None) -> Model:
    """The chosen model, connected. Its notes are printed on standard error."""
    from cgr.solve import Model

    model = Model(replace(given, sessions=sessions, overlap=bool(overlap), budget=budget).engine())
    model.connect()
    for note in model.engine.notes:
        click.echo(f"note:  {note}", err=True)
    return model
