"""Options that several commands share, their types and parsers. Most are made from the fields of `ModelOptions` and
`Settings`: a new option is one new field there."""

from __future__ import annotations

import functools
import importlib.util
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import Field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import click

from cgr.cli.main import say
from cgr.engines.open import ModelOptions
from cgr.errors import UnknownName, UsageError
from cgr.records import visible_line
from cgr.rules import known_rules
from cgr.settings import Settings

if TYPE_CHECKING:
    from cgr.solve import Model

F = TypeVar("F", bound=Callable[..., Any])
SESSIONS = "Traces in flight.  [default: one for each core, at most 8, for a small GGUF file; 16 for each server; else 1]"
MODEL_FIELDS = tuple(one for one in fields(ModelOptions) if "help" in one.metadata)
SETTINGS_FIELDS = {one.name: one for one in fields(Settings)}
AGGREGATE = SETTINGS_FIELDS["aggregate"].metadata["help"].partition("  [")[0]  # without the default
CONFIGURABLE = tuple(one.name for one in MODEL_FIELDS if one.name != "probe_model")  # not every command probes
SERVER_KEYS = ("base_url", "api_key")
FILE_HINT = 'Write one key per line, as in: model = "model.gguf"'
TYPES = {"int": int, "float": float, "bool": bool}
CHOICES = {name: get_args(hint) for name, hint in get_type_hints(Settings).items() if get_origin(hint) is Literal}


def model_options(function: F) -> F:
    """Add the options that choose a model to a command, which gets them as one argument, `given`. What is not given comes
    from the environment or the configuration file."""
    return _model_options(function, with_environment)


def single_model_options(function: F) -> F:
    """The same for a command that never uses a second model: the help does not name one, and it is refused with a hint."""
    return _model_options(function, with_environment, probe_model={"hidden": True})


def other_model_options(function: F) -> F:
    """The same for a command on a run or a recipe that has a model of its own: of the environment and the configuration
    file, only the server and its key are used."""
    help, _, _ = MODEL_FIELDS[0].metadata["help"].partition("  [")
    own = {"help": f"{help}  [default: that of the run or the recipe]"}
    return _model_options(function, lambda chosen: chosen, model=own, probe_model={"hidden": True})


def _model_options(function: F, complete: Callable[[dict[str, Any]], dict[str, Any]], **changes: dict[str, Any]) -> F:
    @functools.wraps(function)
    def command(**options: Any) -> Any:
        chosen = {one.name: options.pop(one.name) for one in MODEL_FIELDS}
        read_configuration()
        return function(given=ModelOptions(**complete(chosen)), **options)

    for one in reversed(MODEL_FIELDS):
        command = _option(one, **changes.get(one.name, {}))(command)
    return command  # type: ignore[return-value]


def with_environment(chosen: dict[str, Any]) -> dict[str, Any]:
    """These model options, completed from the environment. If a model or a server was given, the environment's options for
    its own model do not apply. The servers and their key are read where a server is opened."""
    other = chosen["model"] is not None or chosen["base_url"]
    names = ("threads",) if other else tuple(name for name in CONFIGURABLE if name not in SERVER_KEYS)
    found = {one.name: _from_environment(one) for one in MODEL_FIELDS if one.name in names and not chosen[one.name]}
    return chosen | {name: value for name, value in found.items() if value is not None}


def _from_environment(one: Field[Any]) -> Any:
    text, hint = os.environ.get(variable(one.name), "").strip(), str(one.type)
    if not text:
        return None
    if hint.startswith("tuple"):
        return tuple(text.replace(",", " ").split())
    if not hint.startswith("int"):
        return text
    if not text.isdecimal():
        raise UsageError(f"{variable(one.name)} is {text!r}, not a whole number.", f"Set it as in {variable(one.name)}=4.")
    return int(text)


def variable(name: str) -> str:
    """The environment variable of a model option."""
    return f"CGR_{name.upper()}"


def read_configuration() -> None:
    """Put the keys of the configuration file into the environment, unless they are there: options beat the environment, and
    the environment beats the file."""
    path = configuration_file()
    if path is None:
        return
    for name, value in _parsed(path).items():
        if name not in CONFIGURABLE:
            raise UnknownName.among(f"key in {path}", name, CONFIGURABLE)
        several = isinstance(value, list) and all(isinstance(item, str) for item in value)
        if isinstance(value, bool) or not (several or isinstance(value, str | int)):
            raise UsageError(f"{path}: the value of {name} must be a text, a whole number or a list of texts.", FILE_HINT)
        os.environ.setdefault(variable(name), " ".join(value) if several else str(value))


def configuration_file() -> Path | None:
    """`cgr.toml` in the working folder, else `cgr/config.toml` in the user's configuration folder; CGR_CONFIG names another
    file. None if there is none."""
    if chosen := os.environ.get("CGR_CONFIG"):
        return Path(chosen)
    user = Path(os.environ.get("XDG_CONFIG_HOME") or "~/.config").expanduser() / "cgr" / "config.toml"
    return next((path for path in (Path("cgr.toml"), user) if path.is_file()), None)


def _parsed(path: Path) -> dict[str, Any]:
    import tomllib

    try:
        return tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.", "Check CGR_CONFIG and the file.") from error
    except ValueError as error:
        raise UsageError(f"{path} is not TOML: {str(error).rstrip('.')}.", FILE_HINT) from error


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
        "show_default": one.default is not None and not (several or flag or "[default" in one.metadata["help"]),
        "multiple": several,
        "is_flag": flag,
        "metavar": one.metadata["metavar"],
        "help": one.metadata["help"],
        **({"shell_complete": _complete_rules} if one.name == "rule" else {}),
    }
    return click.option(f"--{name}/--no-{name}" if hint == "bool | None" else f"--{name}", **properties | changes)


def _complete_rules(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    return [name for name in known_rules() if name.startswith(incomplete)]


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
