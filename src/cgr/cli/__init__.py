"""The command line: one small file a verb, no logic. A verb's modules are imported when it is called."""

from cgr.cli.main import main

__all__ = ["main"]
