"""Runs a server for as long as somebody holds our standard input open, then ends it and all its children.

A process of its own, so that the server ends even where the one who wanted it was killed. Imports nothing of ours.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence

GRACE = 15.0  # seconds to end by itself


def keep(words: Sequence[str]) -> int:
    server = subprocess.Popen(words, stdin=subprocess.DEVNULL, start_new_session=True)
    threading.Thread(target=_end_with_us, args=(server,), daemon=True).start()
    code = server.wait()
    _signal(server.pid, signal.SIGKILL)  # what it may have left behind
    return code


def _end_with_us(server: subprocess.Popen[bytes]) -> None:
    while os.read(0, 1024):  # ends when nobody holds the other end
        pass
    _signal(server.pid, signal.SIGTERM)
    try:
        server.wait(GRACE)
    except subprocess.TimeoutExpired:
        _signal(server.pid, signal.SIGKILL)


def _signal(group: int, sign: signal.Signals) -> None:
    try:
        os.killpg(group, sign)
    except (ProcessLookupError, PermissionError):
        return


if __name__ == "__main__":
    sys.exit(keep(sys.argv[1:]))
