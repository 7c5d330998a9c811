"""The worker process: it survives hostile input, interrupts and its own death."""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Iterator
from types import FrameType

import pytest

from cgr.errors import CgrError, UsageError
from cgr.lab.grading.math_worker import MathWorker

HANGS = "1000000000!"  # math-verify computes this factorial


@pytest.fixture
def worker() -> Iterator[MathWorker]:
    worker = MathWorker(deadline=1.0)
    yield worker
    worker.close()


def test_a_pair_that_times_out_is_different(worker: MathWorker, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert not worker.equal(HANGS, "7")
    assert "count as different" in caplog.text
    assert worker.equal("x+2", "2+x")


def test_a_worker_that_was_killed_is_replaced(worker: MathWorker, caplog: pytest.LogCaptureFixture) -> None:
    assert worker.equal("x+2", "2+x")
    assert worker._process is not None
    os.kill(worker._process.pid, signal.SIGKILL)
    assert worker.equal("x+3", "3+x")
    assert not caplog.records


def test_an_interrupted_comparison_is_not_the_reply_to_the_next(worker: MathWorker) -> None:
    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    worker.equal("x+2", "2+x")
    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    with pytest.raises(KeyboardInterrupt):
        worker.equal(HANGS, "7")
    signal.signal(signal.SIGALRM, before)
    assert worker.equal("x+2", "2+x")
    assert not worker.equal("x+2", "3+x")


def test_a_worker_can_be_closed_twice_and_used_again(worker: MathWorker) -> None:
    assert worker.equal("x+2", "2+x")
    worker.close()
    worker.close()
    assert worker.equal("x+2", "2+x")


def test_without_math_verify_the_error_says_what_to_install(worker: MathWorker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "math_verify", None)
    with pytest.raises(UsageError) as caught:
        worker.equal("x+2", "2+x")
    assert "pip install" in caught.value.hint


def test_a_worker_that_does_not_start_is_an_error(worker: MathWorker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(CgrError, match="does not start"):
        worker.equal("x+2", "2+x")
