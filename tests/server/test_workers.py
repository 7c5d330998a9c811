"""Several worker processes on one port."""

from __future__ import annotations

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

from cgr.server.config import ServeConfig
from cgr.server.run import _Supervisor
from tests.server.support import LONG, Served, served
from tests.server.upstream import fake_upstream
from tests.support import command

BOXED = "What is x? Put it into \\boxed{}."


def _children(server: Served) -> set[int]:
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
                if parent == server.process.pid and b"spawn_main" in (entry / "cmdline").read_bytes():
                    found.add(int(entry.name))
            except (OSError, IndexError):
                continue
    return found


def test_workers_share_the_port_and_report_one_sum() -> None:
    with fake_upstream() as fake, served("--base-url", fake.address, "--workers", "2", "--interval", "20") as server:
        with ThreadPoolExecutor(16) as pool:
            replies = list(pool.map(lambda _: server.chat(BOXED, max_tokens=300).status_code, range(32)))
        assert replies == [200] * 32
        assert server.metric("cgr_requests_total", stop_cause="certain") == 32
        assert server.metric("cgr_requests_in_flight") == 0
        workers = _children(server)
        assert len(workers) == 2
        os.kill(min(workers), signal.SIGKILL)
        server.wait_line("a worker ended and is replaced")
        until = time.monotonic() + LONG
        while len(_children(server)) < 2:
            assert time.monotonic() < until
            time.sleep(0.05)
        assert server.chat(BOXED, max_tokens=300).status_code == 200


def test_an_error_at_the_start_is_reported_once() -> None:
    done = command("serve", "--port", "0", "--workers", "2", "--base-url", "http://127.0.0.1:1")
    assert done.returncode == 2
    assert done.stderr.count("error:") == 1
    assert "Traceback" not in done.stderr


def test_a_signal_before_the_workers_are_ready_is_no_error() -> None:
    class Ending:
        """A worker that the signal ends: its pipe closes."""

        def poll(self, _seconds: float) -> bool:
            supervisor.stopping = True
            return True

        def is_alive(self) -> bool:
            return False

        def recv(self) -> Any:
            raise EOFError

    supervisor = _Supervisor(ServeConfig(), cast(Any, None), lambda: None)
    supervisor.workers = cast(Any, {Ending(): Ending()})
    supervisor._wait_until_ready()
