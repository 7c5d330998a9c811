"""`docs/help.md`: what every command prints with `--help`. `python -m release.help_page` writes it; a test compares it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from cgr.cli.main import commands

PAGE = Path(__file__).parent.parent / "docs" / "help.md"
HEAD = """# Every command and its options

What each command prints with `--help`. `make help-page` writes this page from the program, and a test compares the two.
"""
WIDTH = 120


def help_texts() -> Iterator[tuple[str, str]]:
    """The name of each command ("" for `cgr` itself) and its help text."""
    top = click.Context(commands, info_name="cgr", max_content_width=WIDTH, terminal_width=WIDTH)
    yield "", commands.get_help(top)
    for name in commands.list_commands(top):
        command = commands.get_command(top, name)
        if command is not None and not command.hidden:
            yield name, command.get_help(click.Context(command, top, name, max_content_width=WIDTH, terminal_width=WIDTH))


def page() -> str:
    """The text of the page."""
    parts = (f"## cgr {name}".rstrip() + f"\n\n```text\n{text.rstrip()}\n```\n" for name, text in help_texts())
    return "\n".join((HEAD, *parts))


def words(text: str) -> list[str]:
    """The words of a page: versions of click break lines at other places."""
    return text.split()


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
