"""`cgr`: finds the verb, runs it, and turns what goes wrong into one sentence and a hint."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from typing import Any

import click

from cgr import __version__
from cgr.errors import CgrError, UsageError

VERBS = {
    "solve": "Answer one question, and stop thinking when sure.",
    "demo": "A whole experiment in miniature, on the embedded model.",
    "run": "Carry out a recipe: think, probe and report.",
    "generate": "Make full thinking traces for every question and seed.",
    "probe": "Ask saved traces, cut by cut, what the answer would be.",
    "export": "Write a run's traces and probes to a file.",
    "import": "Make a run of traces and probes that were recorded elsewhere.",
    "report": "Score runs and write tables, figures and a page.",
    "ablate": "Vary threshold, interval, forcing, aggregate, prefix and prober on a run.",
    "compare": "Set every rule against the others on the same traces.",
    "fit": "Fit a rule to a run, for use on other questions.",
    "rules": "List the stopping rules.",
    "doctor": "Examine a model where it runs: what it can do, how noisy its certainty is.",
}
MODULES = {"import": "import_"}


class Verbs(click.Group):
    """Knows its verbs by name and first line, and imports one only when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in VERBS:
            return None
        command: click.Command = importlib.import_module(f"cgr.cli.{MODULES.get(name, name)}").command
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in VERBS and not args[0].startswith("-"):
            from cgr.errors import UnknownName

            raise UnknownName.among("command", args[0], VERBS)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(VERBS.items()))


@click.command(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="cgr")
def commands() -> None:
    """Certainty-Guided Reasoning: stop thinking when sure, think on when not, say so when never."""


def main(arguments: Sequence[str] | None = None) -> None:
    """The entry point. Exit code 2 for what was asked wrongly, 1 for what went wrong, 130 for Ctrl-C."""
    sys.exit(run(arguments))


def run(arguments: Sequence[str] | None = None) -> int:
    try:
        result: Any = commands.main(arguments, standalone_mode=False)
    except CgrError as error:
        return complain(error.message, error.hint, 2 if isinstance(error, UsageError) else 1)
    except click.ClickException as error:
        return complain(error.format_message(), _help_hint(error), 2)
    except (click.Abort, KeyboardInterrupt):
        return 130
    except BrokenPipeError:
        sys.stderr.close()
        return 141
    return result if isinstance(result, int) else 0


def complain(message: str, hint: str, code: int) -> int:
    click.echo(f"error: {message}", err=True)
    if hint:
        click.echo(f"hint:  {hint}", err=True)
    return code


def _help_hint(error: click.ClickException) -> str:
    context = getattr(error, "ctx", None)
    return f"See `{context.command_path} --help`." if context else "See `cgr --help`."
