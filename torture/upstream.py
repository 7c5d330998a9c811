"""The fake upstream of the server's tests in a process of its own: a model that gives the same numbers to the last bit."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tests.server.upstream import FakeUpstream, fake_upstream

PACE = 0.002  # seconds for a token, so that there is something to interrupt


@contextmanager
def upstream_process(module: str = "torture.upstream") -> Iterator[str]:
    """Its address; `module` calls `serve_until_told`. It ends with the block, or when this process ends."""
    call = [sys.executable, "-m", module]
    with subprocess.Popen(call, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.communicate("")


def serve_until_told(fake: FakeUpstream) -> None:
    """Serve until standard input ends."""
    with fake_upstream(fake=fake):
        sys.stdout.write(f"{fake.address}\n")
        sys.stdout.flush()
        sys.stdin.read()


if __name__ == "__main__":
    serve_until_told(FakeUpstream(pace=PACE, length=90, sure_at=40, chat_thinks=True))
