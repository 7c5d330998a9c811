"""The command line: one file for each command. A command's modules are imported when it is called."""

from cgr.cli.main import main

__all__ = ["main"]
