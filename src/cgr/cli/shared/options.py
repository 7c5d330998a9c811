"""Command-line options made from the fields of `ModelOptions` and `Settings`: a new option is one new field there."""

from __future__ import annotations

import functools
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import Field, fields, replace
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import click

from cgr.cli.main import say
from cgr.engines.open import ModelOptions
from cgr.errors import UsageError
from cgr.records import visible_line
from cgr.settings import Settings

if TYPE_CHECKING:
    from cgr.solve import Model

F = TypeVar("F", bound=Callable[..., Any])
SESSIONS = "Traces in flight.  [default: 8 for the embedded model, 16 for each server, else 1]"
MODEL_FIELDS = tuple(one for one in fields(ModelOptions) if "help" in one.metadata)
SETTINGS_FIELDS = {one.name: one for one in fields(Settings)}
TYPES = {"int": int, "float": float, "bool": bool}
CHOICES = {name: get_args(hint) for name, hint in get_type_hints(Settings).items() if get_origin(hint) is Literal}


def model_options(function: F) -> F:
    """Add the options that choose a model to a command, which gets them as one argument, `given`."""

    @functools.wraps(function)
    def command(**options: Any) -> Any:
        chosen = {one.name: options.pop(one.name) for one in MODEL_FIELDS}
        return function(given=ModelOptions(**chosen), **options)

    for one in reversed(MODEL_FIELDS):
        command = _option(one)(command)
    return command  # type: ignore[return-value]


def settings_options(*names: str, **changes: Any) -> Callable[[F], F]:
    """Add the options for these fields of `Settings` to a command; `changes` replace properties of the options."""

    def add(command: F) -> F:
        for name in reversed(names):
            command = _option(SETTINGS_FIELDS[name], **changes)(command)
        return command

    return add


def _option(one: Field[Any], **changes: Any) -> Callable[[Any], Any]:
    """The option of a field. With a default of None, its help states what that means."""
    hint, name = str(one.type), one.name.replace("_", "-")
    several, flag = hint.startswith("tuple"), hint.startswith("bool")
    properties = {
        "type": click.Choice(CHOICES[one.name]) if one.name in CHOICES else TYPES.get(hint.split(maxsplit=1)[0], str),
        "default": one.default,
        "show_default": one.default is not None and not (several or flag),
        "multiple": several,
        "is_flag": flag,
        "metavar": one.metadata["metavar"],
        "help": one.metadata["help"],
    }
    return click.option(f"--{name}/--no-{name}" if hint == "bool | None" else f"--{name}", **properties | changes)


def refuse_probe_model(given: ModelOptions, hint: str) -> None:
    """An error if a second model is named where nothing is probed."""
    if given.probe_model:
        raise UsageError("Nothing is probed here, so --probe-model has no use.", hint)


@contextmanager
def waiting_for(addresses: Sequence[str]) -> Iterator[None]:
    """Show on a terminal that servers are waited for, and how long."""
    if not (addresses and sys.stderr.isatty()):
        yield
        return
    ended = threading.Event()
    counting = threading.Thread(target=_count_seconds, args=(" and ".join(addresses), ended), daemon=True)
    counting.start()
    try:
        yield
    finally:
        ended.set()
        counting.join()


def _count_seconds(where: str, ended: threading.Event) -> None:
    start, erase = time.monotonic(), ""
    while not ended.wait(1.0):
        sys.stderr.write(f"\rwaiting for {visible_line(where)} ({time.monotonic() - start:.0f} s)")
        sys.stderr.flush()
        erase = "\r\x1b[K"
    sys.stderr.write(erase)
    sys.stderr.flush()


def open_given(given: ModelOptions, *, sessions: int = 1, overlap: bool | None = None, budget: int | None = None) -> Model:
    """The chosen model, connected. Its notes are printed on standard error."""
    from cgr.solve import Model

    model = Model(replace(given, sessions=sessions, overlap=bool(overlap), budget=budget).engine())
    with waiting_for(given.addresses):
        model.connect()
    for note in model.engine.notes:
        say(f"note:  {note}", err=True)
    return model
