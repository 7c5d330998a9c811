"""Many streams for a long time against an upstream that fails again and again: nothing may grow."""

from __future__ import annotations

import asyncio
import os
import random
import re
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import httpx
from aiohttp import web

from cgr.server import run as server_run
from tests.server.support import LONG, chat_body, chunks, joined, metric
from tests.server.upstream import ANSWER, FakeUpstream, Trouble
from torture.knocks import Trial, Try, knock_of
from torture.processes import Child, memory_of, preload
from torture.upstream import serve_until_told, upstream_process

STREAMS = 256
SECONDS = 10.0  # of one trial: the long run is ten minutes
FAULTY = 0.1  # of the completions of the upstream
FAULTS = ("reset", "half", "garbage", "500", "429", "503", "hang")
QUESTION = "What is x? Put it into \\boxed{}."
WARM_UP = 2  # trials after which nothing may grow any more
MAX_GROWTH = 48 << 20  # bytes after the warm-up, however long it lasts: allocators keep what was once needed
FILES = 4 * STREAMS  # a stream has a client, a stream of thinking and a probe; some are being closed
TASKS = 16 * STREAMS
OPTIONS = ("--interval", "20", "--budget", "120", "--sessions", str(STREAMS), "--upstream-seconds", "2", "--queue", "512")


@dataclass
class FaultyUpstream(FakeUpstream):
    """A fake upstream of which one completion in ten fails."""

    chance: random.Random = field(default_factory=lambda: random.Random(1))

    async def _answer(self, request: web.Request, kind: str, body: dict[str, Any], pieces: Any) -> web.StreamResponse:
        self.requests.clear()
        self.aborted.clear()
        what = self.chance.choice(FAULTS)
        if kind in ("think", "probe", "answer") and self.chance.random() < FAULTY:
            self.troubles.append(Trouble(kind, what, 0 if what.isdigit() else self.chance.randint(1, 3)))
        return await super()._answer(request, kind, body, pieces)


class Used(NamedTuple):
    """What a server has: bytes of memory, open files, and tasks of its event loop."""

    memory: int
    files: int
    tasks: int


@dataclass
class Server:
    """A server in a child. `counts`: the file in which it writes how many tasks it has."""

    child: Child
    address: str
    counts: Path

    def used(self) -> Used:
        """What it has now."""
        tasks = int(self.counts.read_text() or 0)
        return Used(memory_of(self.child.pid), len(os.listdir(f"/proc/{self.child.pid}/fd")), tasks)

    def wait_idle(self, tasks: int) -> Used:
        """What it has once no request is in flight and its tasks are as few as they were."""
        until = time.monotonic() + LONG
        while True:
            text = httpx.get(f"{self.address}/metrics", timeout=LONG, trust_env=False).text
            flying = sum(metric(text, f"cgr_requests_{name}") for name in ("in_flight", "queued"))
            used = self.used()
            if not flying and used.tasks <= tasks:
                return used
            assert time.monotonic() < until, f"{flying:.0f} requests and {used.tasks} tasks are left, {tasks} were at first"
            time.sleep(0.2)


@contextmanager
def _served(folder: Path, upstream: str) -> Iterator[Server]:
    counts = folder / "tasks"
    counts.write_text("0")
    child = Child(("serve", "--port", "0", "--base-url", upstream, *OPTIONS), folder, _counting(counts))
    address = child.wait_address(time.monotonic() + LONG)
    assert address, child.output()
    try:
        yield Server(child, address, counts)
    finally:
        os.kill(child.pid, signal.SIGTERM)
        done = child.wait()
    assert done.code == 0, done.err[-2000:]


def _counting(file: Path) -> Callable[[], None]:
    """In the child: the server writes the number of its tasks into this file, twice a second."""

    async def count() -> None:
        while True:
            draft = file.with_suffix(".new")
            draft.write_text(str(len(asyncio.all_tasks())))
            draft.replace(file)
            await asyncio.sleep(0.5)

    def before() -> None:
        real = server_run._serve

        async def counted(*arguments: Any) -> int:
            counting = asyncio.create_task(count())
            try:
                return await real(*arguments)
            finally:
                counting.cancel()

        vars(server_run)["_serve"] = counted

    return before


class Clients:
    """Streams that never stop asking, on an event loop in a thread of its own. `wrong`: replies that must not be."""

    def __init__(self, address: str, seed: int) -> None:
        self.address, self.chance = address, random.Random(seed)
        self.seen: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.over = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._all()))

    def start(self) -> None:
        """Begin to ask."""
        self._thread.start()

    def stop(self) -> None:
        """End with the requests that are in flight."""
        self.over.set()
        self._thread.join(2 * LONG)
        assert not self._thread.is_alive(), "a request never ended"

    async def _all(self) -> None:
        timeout = aiohttp.ClientTimeout(total=None, sock_read=LONG)
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=timeout) as client:
            await asyncio.gather(*(self._one(client) for _ in range(STREAMS)))

    async def _one(self, client: aiohttp.ClientSession) -> None:
        while not self.over.is_set():
            try:
                self.seen[await self._ask(client)] += 1
            except (AssertionError, aiohttp.ClientError, TimeoutError, ValueError) as error:
                self.wrong.append(f"{type(error).__name__}: {error}"[:500])

    async def _ask(self, client: aiohttp.ClientSession) -> str:
        stream, leaves = self.chance.random() < 0.8, self.chance.random() < 0.15
        body = chat_body(QUESTION, stream=stream)
        async with client.post(f"{self.address}/v1/chat/completions", json=body) as reply:
            if leaves:
                await reply.content.readany()
                reply.close()
                return "left"
            return check_reply(reply.status, await reply.text(), stream=stream)


def check_reply(status: int, text: str, *, stream: bool) -> str:
    """What a reply is: the right answer, or a clear error; anything else is an AssertionError."""
    if status != 200:
        assert status in (429, 502, 504), (status, text[:300])
        assert re.search(r'"message":\s*"\w', text), text[:300]
        return f"error {status}"
    if not stream:
        assert ANSWER.replace("\\", "\\\\") in text, text[:300]
        return "answered"
    found = chunks(text)
    if any("error" in chunk for chunk in found):
        return "error in the stream"
    assert joined(found, "content") == ANSWER, text[-300:]
    return "answered"


@knock_of(
    "streams",
    f"{STREAMS} streams at a time against an upstream of which one completion in ten fails; a trial is {SECONDS:.0f} s, "
    "the long run ten minutes",
    "every reply is right or a clear error; memory, open files and tasks stay flat, and return to what they were",
    times=6,
    long=60,
)
@contextmanager
def streams(folder: Path) -> Iterator[Try]:
    """One server, and clients that never pause from the first trial to the last."""
    preload()
    with upstream_process("torture.soak") as upstream, _served(folder, upstream) as server:
        idle, history = server.used(), list[Used]()
        clients = Clients(server.address, 1)
        clients.start()

        def one(trial: Trial) -> str:
            until = time.monotonic() + SECONDS
            while time.monotonic() < until:
                history.append(server.used())
                time.sleep(0.5)
            wrong, clients.wrong = clients.wrong, []
            assert not wrong, f"{len(wrong)} wrong replies, such as {wrong[0]}"
            now, first = history[-1], history[min(WARM_UP * int(SECONDS * 2), len(history) - 1) :][0]
            assert now.memory - first.memory < MAX_GROWTH, f"the memory grew by {now.memory - first.memory >> 20} MB"
            assert now.files < idle.files + FILES, f"{now.files} files and sockets are open"
            assert now.tasks < idle.tasks + TASKS, f"{now.tasks} tasks run"
            return "flat"

        try:
            yield one
        finally:
            clients.stop()
        after = server.wait_idle(idle.tasks + 4)
        print(f"streams: {dict(clients.seen)}, idle before {idle}, busy {history[-1]}, idle after {after}", flush=True)
        assert after.files <= idle.files + STREAMS, f"{after.files - idle.files} more files are open than before"


if __name__ == "__main__":
    serve_until_told(FaultyUpstream(pace=0.01, length=90, sure_at=40))
