"""`cgr serve --shadow`, killed while it records: what it has counted as recorded is in the run, once."""

from __future__ import annotations

import os
import secrets
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import httpx

from cgr.lab.store.recorded import RecordedTrace
from cgr.records import Message
from cgr.server.record.key import KEY_BYTES, RecordingKey
from tests.server.support import LONG, chat_body, metric
from torture.knocks import Trial
from torture.processes import Child, succeed
from torture.runs import Rows, rows

QUESTIONS = tuple(f"What is x number {number}? Put it into \\boxed{{}}." for number in range(4))
CLIENTS = 4
RECORDED = "cgr_shadow_recorded_total"
OPTIONS = ("--when", "always", "--interval", "20", "--budget", "400", "--shutdown-seconds", "2")
KEY = RecordingKey(b"\x5a" * KEY_BYTES)
Traces = dict[str, RecordedTrace]  # by question


@dataclass
class Recording:
    """The folder of a recording that several servers continue, one after the other. `sent`: requests of each question."""

    place: Path
    address: str
    workers: int = 1
    sent: Counter[str] = field(default_factory=Counter)

    @property
    def runs(self) -> list[str]:
        """The folders of the runs: one for each worker."""
        return [f"rec/worker-{number}" for number in range(1, self.workers + 1)] if self.workers > 1 else ["rec"]

    def rows(self) -> Rows:
        """The probed traces by question, seed and run."""
        found = [(run, key, row) for run in self.runs for key, row in rows(self.place / run).items()]
        return {(question, seed, run): row for run, (question, seed, name), row in found if name}

    def start(self) -> Child:
        """A server that continues the recording."""
        call = ("serve", "--port", "0", "--base-url", self.address, "--shadow", "--record", "rec", *OPTIONS)
        return Child((*call, "--workers", str(self.workers)), self.place, _same_key)

    def ask(self, address: str, question: str) -> None:
        """One request. That the server dies in the middle of it is no error."""
        self.sent[KEY.question_id([Message("user", question)])] += 1
        with suppress(httpx.TransportError):
            reply = httpx.post(address + "/v1/chat/completions", json=chat_body(question), timeout=LONG, trust_env=False)
            assert reply.status_code == 200, reply.text


def _same_key() -> None:
    """In the child: every recording has the same key, so that rows of two recordings can be compared."""
    real = secrets.token_hex
    secrets.token_hex = lambda nbytes=None: KEY.secret.hex() if nbytes == KEY_BYTES else real(nbytes)


def undisturbed(place: Path, address: str) -> tuple[Traces, float]:
    """The row of each question, from a server that is not killed; and the seconds that the whole takes."""
    place.mkdir(parents=True)
    recording, began = Recording(place, address), time.monotonic()
    _whole_life(recording)
    found = {question: row for (question, _, _), row in recording.rows().items()}
    assert found.keys() == recording.sent.keys(), f"{len(found)} rows of {len(QUESTIONS)} replies"
    return found, time.monotonic() - began


def killed_recorder(trial: Trial, address: str, wanted: Traces, seconds: float) -> str:
    """Servers that are killed at a random moment of their start or their work, and one that is not."""
    recording = Recording(trial.folder, address, trial.chance.choice((1, 1, 1, 1, 2)))
    recorded: Rows = {}
    for _ in range(trial.chance.randint(1, 3)):
        # workers are new processes, which import everything: they take longer to start
        counted = _killed_life(recording, trial.chance.uniform(0, seconds if recording.workers == 1 else 4 * seconds))
        now = recording.rows()
        _check(recording, recorded, now, wanted)
        new = len(now) - len(recorded)
        assert new >= counted, f"{counted} replies were counted as recorded, but {new} are"
        recorded = now
    _whole_life(recording)
    final = recording.rows()
    _check(recording, recorded, final, wanted)
    assert len(final) == len(recorded) + len(QUESTIONS), f"{len(final)} rows, not {len(recorded) + len(QUESTIONS)}"
    _open(recording, len(final))
    return f"killed, {recording.workers} worker{'s' * (recording.workers > 1)}"


def _check(recording: Recording, before: Rows, now: Rows, wanted: Traces) -> None:
    """Nothing is lost, changed, or doubled; and every row is what an undisturbed server records."""
    assert before.items() <= now.items(), "a row that was recorded before the kill is gone or changed"
    assert Counter(question for question, _, _ in now) <= recording.sent, "more rows of a question than requests for it"
    for (question, seed, run), row in now.items():
        assert replace(row, seed=0) == wanted[question], "a row is not what an undisturbed server records"
        assert seed == 0 or (question, seed - 1, run) in now, "a seed is left out"


def _open(recording: Recording, count: int) -> None:
    """The commands of the lab read the recording."""
    place = recording.place
    for number, run in enumerate(recording.runs):
        succeed("export", run, f"{number}.jsonl", folder=place)
    if recording.workers > 1:
        succeed("merge", *recording.runs, "--out", "all", folder=place)
        assert len({key for key in rows(place / "all") if key[2]}) == count, "cgr merge lost rows"


def _killed_life(recording: Recording, seconds: float) -> int:
    """A server under traffic until it is killed; returns how many replies it had counted as recorded."""
    child, until, counted = recording.start(), time.monotonic() + seconds, 0
    try:
        address = child.wait_address(until)
        if address:
            with _traffic(recording, address):
                while time.monotonic() < until:
                    counted = _counted(address)
                    time.sleep(0.01)
                child.kill()
    finally:
        child.kill()
        done = child.wait()
        child.wait_for_group()
    assert done.code == -signal.SIGKILL, (done.code, done.err[-2000:])
    return counted


def _whole_life(recording: Recording) -> None:
    """A server that is not killed: each question once, and the end by SIGTERM."""
    child = recording.start()
    address = child.wait_address(time.monotonic() + LONG)
    assert address, f"the server did not start: {child.wait().err[-2000:] if not child.running() else 'it hangs'}"
    for question in QUESTIONS:
        recording.ask(address, question)
    until = time.monotonic() + LONG
    while _counted(address) < len(QUESTIONS):
        assert time.monotonic() < until, "a reply was not recorded"
        time.sleep(0.02)
    os.kill(child.pid, signal.SIGTERM)
    done = child.wait()
    assert done.code == 0, (done.code, done.err[-2000:])
    child.wait_for_group()


def _counted(address: str) -> int:
    return int(metric(httpx.get(address + "/metrics", timeout=LONG, trust_env=False).text, RECORDED))


@contextmanager
def _traffic(recording: Recording, address: str) -> Iterator[None]:
    """Clients that ask one question after the other."""
    over = threading.Event()

    def ask(questions: Sequence[str]) -> None:
        while not over.is_set():
            for question in questions:
                if not over.is_set():
                    recording.ask(address, question)

    with ThreadPoolExecutor(CLIENTS) as pool:
        asking = [pool.submit(ask, [question]) for question in QUESTIONS[:CLIENTS]]
        try:
            yield
        finally:
            over.set()
            for one in asking:
                one.result()
