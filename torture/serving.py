"""`cgr serve` between hostile clients and failing upstreams: every request ends well or in a clear error."""

from __future__ import annotations

import json
import os
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import httpx

from tests.server.support import LONG, Served, chat_body, chunks, joined, served
from tests.server.upstream import ANSWER, FakeUpstream, Trouble, fake_upstream
from torture.knocks import Trial, Try, knock_of
from torture.processes import memory_of

QUESTION = "What is x? Put it into \\boxed{}."
MAX_GROWTH = 96 << 20  # bytes that the server's memory may grow by over all trials: caches fill, buffers are kept
STREAMS = 64
OWN_ERRORS = ("500", "503")  # codes that only the server itself gives; 502 is an upstream that never worked again


@contextmanager
def _gateway() -> Iterator[tuple[Served, FakeUpstream]]:
    """A server in front of a fake upstream; at the end nothing may be left of all that happened to it."""
    options = (
        "--interval",
        "20",
        "--budget",
        "400",
        "--sessions",
        str(STREAMS),
        "--upstream-seconds",
        "1",
        "--queue",
        "512",
    )
    with ExitStack() as stack:
        fake = stack.enter_context(fake_upstream())
        server = stack.enter_context(served("--base-url", fake.address, *options))
        for _ in range(3):
            server.chat(QUESTION)
        before = _used(server)
        yield server, fake
        _wait_idle(server, fake)
        files, memory = (now - then for now, then in zip(_used(server), before, strict=True))
        assert files <= STREAMS, f"{files} more files and sockets are open than at the start"  # connections that are kept
        assert memory < MAX_GROWTH, f"the memory grew by {memory >> 20} MB"
        for code in OWN_ERRORS:
            assert server.metric("cgr_http_requests_total", code=code) == 0, f"replies with {code}"


def _used(server: Served) -> tuple[int, int]:
    """Open files, and bytes of memory."""
    pid = server.process.pid
    return len(os.listdir(f"/proc/{pid}/fd")), memory_of(pid)


def _wait_idle(server: Served, fake: FakeUpstream) -> None:
    fake.wait_idle(LONG)
    until = time.monotonic() + LONG
    while server.metric("cgr_requests_in_flight") or server.metric("cgr_requests_queued"):
        assert time.monotonic() < until, "a request is still in flight, though its client has left"
        time.sleep(0.02)


# Upstreams

FAULTS = ("reset", "half", "garbage", "500", "429", "503", "hang")


@knock_of(
    "upstream-faults",
    f"an upstream that resets, breaks off, sends garbage, hangs, or answers 429, 500 and 503, at {STREAMS} streams",
    "every request ends in the right reply or in a clear error; no 500 of our own, no leaked task, socket or slot",
    times=100,
    long=500,
)
@contextmanager
def upstream_faults(folder: Path) -> Iterator[Try]:
    """Each trial adds a fault and sends a request; 64 requests are in flight at a time."""
    with _gateway() as (server, fake), ThreadPoolExecutor(STREAMS) as pool:
        lock, waiting = threading.Lock(), []

        def one(trial: Trial) -> str:
            kind, what = trial.chance.choice(("think", "probe", "answer", "chat")), trial.chance.choice(FAULTS)
            if kind == "chat" and what not in ("reset", "429"):  # what else is passed on is the upstream's
                kind = "think"
            with lock:
                # a stream may take any time before its first token, so an upstream hangs after it; a probe has three
                after = 0 if what.isdigit() else trial.chance.randint(1, 2) if what == "hang" else trial.chance.randrange(6)
                fake.troubles.append(Trouble(kind, what, after))
            own = trial.chance.random() < 0.2
            waiting.append(pool.submit(_ask, server, "A poem" if own else QUESTION, stream=trial.chance.random() < 0.5))
            if len(waiting) < STREAMS:
                return "in flight"
            return str(waiting.pop(0).result())

        yield one
        with lock:
            fake.troubles.clear()
        for left in waiting:
            left.result()
        assert _ask(server, QUESTION, stream=True) == "answered"


def _ask(server: Served, question: str, *, stream: bool) -> str:
    """A request, and a check of its reply: the answer, or an error in the form of OpenAI's API."""
    reply = server.chat(question, stream=stream)
    if reply.status_code != 200:
        error = reply.json()["error"]
        assert reply.status_code in (429, 502, 504), reply.text
        assert error["message"]
        return f"error {reply.status_code}"
    if not stream:
        if question == QUESTION:
            assert reply.json()["choices"][0]["message"]["content"] == ANSWER, reply.text
        return "answered"
    found = chunks(reply.text)
    if any("error" in chunk for chunk in found):
        return "error in the stream"
    if question == QUESTION:
        assert joined(found, "content") == ANSWER, reply.text[-500:]
    return "answered"


# Clients

Attack = Callable[[socket.socket, random.Random], None]


def _slow(client: socket.socket, chance: random.Random) -> None:
    """Slow loris: a few bytes of the head at a time, and then nothing."""
    for byte in b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nX-A: "[: chance.randrange(5, 50)]:
        client.sendall(bytes([byte]))
        time.sleep(0.001)


def _half(client: socket.socket, chance: random.Random) -> None:
    body = json.dumps(chat_body(QUESTION, stream=True)).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    client.sendall((head + body)[: chance.randrange(1, len(head + body))])


def _leave(client: socket.socket, chance: random.Random) -> None:
    """A whole request, of which some bytes of the reply are read, or none."""
    body = json.dumps(chat_body(QUESTION, stream=True)).encode()
    client.sendall(f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
    if chance.random() < 0.7:
        client.recv(chance.randrange(1, 2000))


def _large(client: socket.socket, chance: random.Random) -> None:
    """A body of 100 MB, or one that says so."""
    client.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 104857600\r\n\r\n")
    for _ in range(chance.choice((1, 100, 1600))):
        client.sendall(b" " * 65536)


def _headers(client: socket.socket, chance: random.Random) -> None:
    """Thousands of headers, or one that never ends."""
    client.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n")
    for number in range(chance.choice((100, 20000))):
        client.sendall(f"X-{number}: {'a' * 200}\r\n".encode())
    client.sendall(b"\r\n")


def _garbage(client: socket.socket, chance: random.Random) -> None:
    client.sendall(chance.randbytes(chance.choice((1, 100, 100_000))))


def _deep(client: socket.socket, chance: random.Random) -> None:
    body = chance.choice((b"[", b'{"a":')) * chance.choice((1000, 500_000))
    _post(client, body)


def _not_utf8(client: socket.socket, chance: random.Random) -> None:
    _post(client, b'{"messages":[{"role":"user","content":"' + chance.randbytes(50) + b'"}]}')


def _lies(client: socket.socket, chance: random.Random) -> None:
    """Framing that contradicts itself."""
    lines = (b"Transfer-Encoding: chunked", b"Content-Length: 5", b"Content-Length: 7", b"Content-Length: -1")
    chosen = b"\r\n".join(chance.sample(lines, 2))
    client.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n" + chosen + b"\r\n\r\nzzzz\r\n{}")


def _post(client: socket.socket, body: bytes) -> None:
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
    client.sendall(head.encode() + body)
    reply = client.recv(4096)
    assert reply.startswith((b"HTTP/1.1 400", b"HTTP/1.1 413")), reply[:200]


ATTACKS: tuple[Attack, ...] = (_slow, _half, _leave, _large, _headers, _garbage, _deep, _not_utf8, _lies)


@knock_of(
    "clients",
    "slow and half requests, clients that leave, bodies of 100 MB, floods of headers, deep JSON, bytes that are not UTF-8",
    "a 4xx reply or a closed connection; other requests are served meanwhile, and nothing leaks",
    times=54,
    long=900,
)
@contextmanager
def clients(folder: Path) -> Iterator[Try]:
    """Attacks in turn; up to 16 connections are left open, as a slow client would."""
    with _gateway() as (server, _):
        address, open_ones = urlsplit(server.address), []

        def one(trial: Trial) -> str:
            attack = ATTACKS[trial.number % len(ATTACKS)]
            client = socket.create_connection((address.hostname, address.port or 0), timeout=LONG)
            with suppress(ConnectionError):  # the server may close the connection of such a client at any time
                attack(client, trial.chance)
            open_ones.append(client)
            while len(open_ones) > 16:
                open_ones.pop(trial.chance.randrange(len(open_ones))).close()
            assert server.get("/health").status_code == 200
            if trial.number % 5 == 0:
                assert _ask(server, QUESTION, stream=trial.number % 2 == 0) == "answered"
            return attack.__name__.lstrip("_").replace("_", " ")

        yield one
        for client in open_ones:
            client.close()
        with suppress(httpx.TransportError):
            server.get("/health")
