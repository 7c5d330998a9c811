"""Runs a server as long as its standard input is open, then ends the server and all its children.

It is a process of its own, so that the server ends even if the process that started it was killed. It imports nothing of
cgr.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence

GRACE_SECONDS = 15.0  # before the server is killed


def keep(words: Sequence[str]) -> int:
    """Run this command until it ends or standard input closes; returns its exit code."""
    server = subprocess.Popen(words, stdin=subprocess.DEVNULL, start_new_session=True)
    threading.Thread(target=_end_with_input, args=(server,), daemon=True).start()
    code = server.wait()
    _signal(server.pid, signal.SIGKILL)  # processes that it may have left
    return code


def _end_with_input(server: subprocess.Popen[bytes]) -> None:
    while os.read(0, 1024):  # returns nothing once the other end is closed
        pass
    _signal(server.pid, signal.SIGTERM)
    try:
        server.wait(GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        _signal(server.pid, signal.SIGKILL)


def _signal(group: int, sign: signal.Signals) -> None:
    try:
        os.killpg(group, sign)
    except (ProcessLookupError, PermissionError):
        return


if __name__ == "__main__":
    sys.exit(keep(sys.argv[1:]))
