"""`cgr`: finds the command, runs it, and reports an error as one sentence and a hint. Everything that a command prints goes
through here: text that comes from elsewhere (questions, models, files) never reaches a terminal with control characters."""

from __future__ import annotations

import errno
import importlib
import io
import json
import os
import signal
import sys
import threading
import traceback
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, TextIO

import click

from cgr import __version__
from cgr.errors import UnknownName, UsageError, explained, refused_by_system
from cgr.records import UNPRINTABLE, visible

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
    "open": "Show the web page of a run in a browser.",
    "runs": "List the runs in a folder, and what each lacks.",
    "ablate": "Vary threshold, interval, forcing, aggregate, prefix and probe model.",
    "compare": "Compare all stopping rules on the same traces.",
    "fit": "Fit the parameters of a rule to a run.",
    "calibrate": "Find a threshold with a proof that little is lost.",
    "serve": "Serve a model by OpenAI's API; stop its thinking when it is certain.",
    "rules": "List the stopping rules, or describe one.",
    "doctor": "Check what a model can do and how noisy its certainty is.",
}
MODULES = {"import": "import_", "open": "open_"}
USAGE, FAILURE, BUG, INTERRUPTED, CLOSED_PIPE = 2, 1, 70, 130, 141  # exit codes
STREAM_ERRORS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EPIPE}  # without the name of a file
DEBUG = "CGR_DEBUG"


def say(text: str, *, err: bool = False) -> None:
    """Print text for a person, on standard output or standard error."""
    click.echo(visible(text), err=err)


def say_json(data: Any) -> None:
    """Print a value, or a text that is JSON already, as one line of JSON: unprintable characters are escaped."""
    text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
    click.echo(UNPRINTABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", text))


class CommandFailed(Exception):
    """Carries an error past click, which would end the program silently."""


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

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (OSError, EOFError) as error:
            raise CommandFailed from error


@click.command(cls=LazyCommands, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="cgr")
@click.pass_context
def commands(ctx: click.Context) -> None:
    """Certainty-Guided Reasoning: stop a reasoning model when it is certain of its answer.

    `cgr demo` is a good start. `cgr COMMAND --help` shows the options of a command.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def main(arguments: Sequence[str] | None = None) -> None:
    """The entry point. Exit codes: 2 for wrong usage, 1 for a failure, 70 for a bug, 130 for Ctrl-C."""
    _on_interrupt(signal.default_int_handler)
    try:
        code = run(arguments)
    except KeyboardInterrupt:  # while an error was printed
        code = INTERRUPTED
    _on_interrupt(signal.SIG_DFL)  # everything is done: Ctrl-C while the interpreter ends needs no traceback
    sys.exit(code)


def _on_interrupt(handler: Any) -> None:
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, handler)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code. Errors are printed on standard error."""
    _prepare_streams()
    try:
        result: Any = commands.main(arguments, standalone_mode=False)
        if sys.stdout:
            sys.stdout.flush()
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except Exception as error:  # noqa: BLE001 - whatever it is, a user gets a sentence
        return _failed((error.__cause__ or error) if isinstance(error, CommandFailed) else error)
    return result if isinstance(result, int) else 0


def _prepare_streams() -> None:
    """No text is an error to print; a closed stream is as good as /dev/null."""
    sys.stdout, sys.stderr = (_printable(one) for one in (sys.stdout, sys.stderr))


def _printable(stream: TextIO | None) -> TextIO:
    if stream is None:
        return open(os.devnull, "w", encoding="utf-8")
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors="backslashreplace")
    return stream


def _failed(error: BaseException) -> int:
    """Print the error; the exit code."""
    if os.environ.get(DEBUG):
        traceback.print_exception(error)
    if isinstance(error, click.ClickException):
        return _print_error(error.format_message(), _help_hint(error), USAGE)
    if isinstance(error, OSError) and not error.filename and error.errno in STREAM_ERRORS:
        _give_up(sys.stdout)
        if isinstance(error, BrokenPipeError):
            return CLOSED_PIPE
        error = refused_by_system(error, "Standard output cannot be written")
    told = explained(error)
    if told is None:
        what = f"{type(error).__name__}: {error}"
        return _print_error(
            f"cgr failed, which is a bug: {what}.", f"Set {DEBUG}=1 to see the traceback, and report it.", BUG
        )
    wrong_usage = isinstance(told, UsageError)
    return _print_error(told.message, told.hint, USAGE if wrong_usage else FAILURE)


def _give_up(stream: TextIO) -> None:
    """Write nothing more to a stream that failed. The interpreter would try again when it ends, and report that."""
    with suppress(OSError, ValueError), open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), stream.fileno())


def _print_error(message: str, hint: str, code: int) -> int:
    try:
        click.echo(f"error: {_sentence(message)}", err=True)
        if hint:
            click.echo(f"hint:  {_sentence(hint)}", err=True)
    except OSError:
        _give_up(sys.stderr)
    return code


def _sentence(text: str) -> str:
    return visible(" ".join(text.split("\n")))


def _help_hint(error: click.ClickException) -> str:
    context = getattr(error, "ctx", None)
    return f"See `{context.command_path} --help`." if context else "See `cgr --help`."
