"""`cgr`: finds the command, runs it, and reports an error as one sentence and a hint."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from typing import Any

import click

from cgr import __version__
from cgr.errors import CgrError, UnknownName, UsageError

VERBS = {
    "solve": "Answer one question; stop thinking when the model is certain.",
    "demo": "Run a small complete experiment on the embedded model.",
    "run": "Run an experiment from a recipe file: generate, probe, report.",
    "generate": "Record full thinking traces for every question and seed.",
    "probe": "Probe the traces of a run: ask for the answer at many cuts.",
    "export": "Write the traces and probes of a run to a file.",
    "import": "Create a run from traces and probes recorded elsewhere.",
    "merge": "Join runs of several processes or machines.",
    "report": "Score runs; write tables, figures and a web page.",
    "ablate": "Vary threshold, interval, forcing, aggregate, prefix and probe model.",
    "compare": "Compare all stopping rules on the same traces.",
    "fit": "Fit the parameters of a rule to a run.",
    "calibrate": "Find a threshold with a proof that little is lost.",
    "serve": "Serve a model by OpenAI's API; stop its thinking when it is certain.",
    "rules": "List the stopping rules.",
    "doctor": "Check what a model can do and how noisy its certainty is.",
}
MODULES = {"import": "import_"}


class LazyCommands(click.Group):
    """Lists the commands without importing them, and imports a command when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in VERBS:
            return None
        command: click.Command = importlib.import_module(f"cgr.cli.{MODULES.get(name, name)}").command
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        """As in click, but an unknown name raises UnknownName, which suggests the nearest."""
        if args and args[0] not in VERBS and not args[0].startswith("-"):
            raise UnknownName.among("command", args[0], VERBS)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(VERBS.items()))


@click.command(cls=LazyCommands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="cgr")
def commands() -> None:
    """Certainty-Guided Reasoning: stop a reasoning model when it is certain of its answer.

    `cgr demo` is a good start. `cgr COMMAND --help` shows the options of a command.
    """


def main(arguments: Sequence[str] | None = None) -> None:
    """The entry point. Exit codes: 2 for wrong usage, 1 for a failure, 130 for Ctrl-C."""
    sys.exit(run(arguments))


def run(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code. Errors are printed on standard error."""
    try:
        result: Any = commands.main(arguments, standalone_mode=False)
    except CgrError as error:
        return _print_error(error.message, error.hint, 2 if isinstance(error, UsageError) else 1)
    except click.ClickException as error:
        return _print_error(error.format_message(), _help_hint(error), 2)
    except (click.Abort, KeyboardInterrupt):
        return 130
    except BrokenPipeError:
        sys.stderr.close()
        return 141
    return result if isinstance(result, int) else 0


def _print_error(message: str, hint: str, code: int) -> int:
    click.echo(f"error: {message}", err=True)
    if hint:
        click.echo(f"hint:  {hint}", err=True)
    return code


def _help_hint(error: click.ClickException) -> str:
    context = getattr(error, "ctx", None)
    return f"See `{context.command_path} --help`." if context else "See `cgr --help`."
