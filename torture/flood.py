"""A model that never closes its answer: megabytes without a brace, and streams that do not end."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

import httpx
from aiohttp import web

from cgr.engines.completions.policy import RetryPolicy
from tests.server.support import LONG, chat_body, chunks, joined
from tests.server.upstream import ANSWER, FakeUpstream, Trouble
from torture.knocks import Trial, Try, knock_of
from torture.processes import Child, cgr, limit_memory, memory_of, preload, refused
from torture.upstream import serve_until_told, upstream_process

QUESTION = "What is x? Put it into \\boxed{}."
MEGABYTE = 1 << 20
MOST_EVENTS = 200_000  # of a stream "without an end": far beyond what may be read of it
MOST_BYTES = 160 * MEGABYTE
MAX_PEAK = 300 * MEGABYTE  # that a command may use beyond what it has from the start
KINDS = ("think", "probe", "answer", "chat")
FLOODS = ("long tokens", "open braces", "one line", "no end", "no end, no tokens", "large reply")
Piece = dict[str, Any]


@dataclass
class FloodingUpstream(FakeUpstream):
    """A fake upstream that floods completions of one kind in one way, both set by `/flood`."""

    flooded: str = ""
    flood: str = ""

    async def choose(self, request: web.Request) -> web.Response:
        """Set what is flooded from now on."""
        body = await request.json()
        self.flooded, self.flood = body["kind"], body["flood"]
        return web.json_response({})

    def app(self) -> web.Application:
        app = super().app()
        app.router.add_post("/flood", self.choose)
        return app

    async def _send(
        self, request: web.Request, kind: str, body: dict[str, Any], pieces: Iterator[Piece], trouble: Trouble | None
    ) -> web.StreamResponse:
        if kind != self.flooded:
            return await super()._send(request, kind, body, pieces, trouble)
        if not body.get("stream") or self.flood == "large reply":
            return await _large_reply(request)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        if self.flood == "one line":
            await response.write(b"data: ")
            await _write_much(response, b"{" * MEGABYTE)
            return response
        sent = 0
        for number, piece in enumerate(cycle(_spoilt(piece, self.flood) for piece in pieces)):
            data = b"data: " + json.dumps(piece).encode() + b"\n\n"
            sent += len(data)
            if number > MOST_EVENTS or sent > MOST_BYTES:
                break
            await response.write(data)
        return response


def _spoilt(piece: Piece, flood: str) -> Piece:
    """The event without an end; some with much text, some without tokens."""
    texts = {"long tokens": "x" * 4 * MEGABYTE, "open braces": "{" * 4 * MEGABYTE, "no end, no tokens": "x"}
    for choice in piece["choices"]:
        choice["finish_reason"] = choice["stop_reason"] = None
        if "delta" in choice:
            choice["delta"] = {"content": texts.get(flood, "x")}
        elif flood in texts:
            choice["text"] = texts[flood]
        if flood == "no end, no tokens":
            choice.pop("token_ids", None)
            choice.pop("logprobs", None)
    return piece | {"usage": None}


async def _large_reply(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    await response.prepare(request)
    await response.write(b'{"choices": [{"text": "')
    await _write_much(response, b"x" * MEGABYTE)
    await response.write(b'"}]}')
    return response


async def _write_much(response: web.StreamResponse, part: bytes) -> None:
    for _ in range(MOST_BYTES // len(part)):
        await response.write(part)


@knock_of(
    "output-flood",
    "a model that sends megabytes without a closing brace: tokens of megabytes, open braces, a line or a reply of 160 MB, "
    "a stream that never ends",
    "`cgr solve` and `generate` give a valid result or a sentence, `cgr serve` a reply or a clear error; memory is bounded",
    times=24,
    long=240,
    mended=(
        "a server that sent more tokens than it was asked for kept a probe or an answer of `cgr serve` going without end.",
        "tokens of megabytes were all kept; now a token of more than 4,096 characters is an error of the server.",
        "`cgr serve` read a reply that it passes on into memory, however long it was.",
    ),
)
@contextmanager
def flood(folder: Path) -> Iterator[Try]:
    """Every kind of completion with every flood in turn; the server is one and the same for all trials."""
    preload()
    with upstream_process("torture.flood") as address, _gateway(folder, address) as (server, pid):
        most = memory_of(pid) + MAX_PEAK

        def one(trial: Trial) -> str:
            kind = KINDS[trial.number % len(KINDS)]
            how = FLOODS[trial.number // len(KINDS) % len(FLOODS)]
            _choose(address, kind, how)
            own = memory_of(os.getpid()) + MAX_PEAK
            ends = [_commanded(command, trial.folder, own) for command in _commands(address)] if kind != "chat" else []
            replies = [_asked(server, kind, stream=stream) for stream in (True, False)]
            used = memory_of(pid)
            assert used < most, f"cgr serve has {used >> 20} MB of memory"
            _choose(address, "", "")
            assert _asked(server, "", stream=True) == "answered"
            return f"{kind}: {', '.join([*ends, *replies])}"

        yield one


def _choose(address: str, kind: str, how: str) -> None:
    httpx.post(f"{address}/flood", json={"kind": kind, "flood": how}, timeout=LONG, trust_env=False)


def _commands(address: str) -> tuple[tuple[str, ...], ...]:
    usual = ("--base-url", address, "--budget", "150")
    generate = ("generate", "--questions", "arithmetic", "--limit", "1", "--out", "run", "--quiet", *usual)
    return (("solve", QUESTION, "--interval", "32", "--json", *usual), generate)


def _commanded(command: Sequence[str], folder: Path, most: int) -> str:
    done = cgr(*command, folder=folder, before=_in_child)
    assert done.peak < most, f"cgr {command[0]} used {done.peak >> 20} MB of memory"
    if refused(done):
        return f"{command[0]} refused"
    if command[0] == "solve":
        found = json.loads(done.out)
        assert found["thinking_tokens"] <= 150
        assert found["certainty"] is None or 0 <= found["certainty"] <= 1
    return f"{command[0]} done"


def _in_child() -> None:
    """Limited memory, and short pauses between attempts: it is the memory that is tried here."""
    limit_memory()
    RetryPolicy.delay = lambda self, attempt, wait=None: 0.05  # type: ignore[method-assign]


@contextmanager
def _gateway(folder: Path, address: str) -> Iterator[tuple[str, int]]:
    """`cgr serve`: its address and its process."""
    call = ("serve", "--port", "0", "--base-url", address, "--interval", "20", "--budget", "400", "--upstream-seconds", "5")
    child = Child(call, folder, _in_child)
    found = child.wait_address(time.monotonic() + LONG)
    assert found, child.output()
    try:
        yield found, child.pid
    finally:
        os.kill(child.pid, signal.SIGTERM)
        done = child.wait()
    assert done.code == 0, done.err[-2000:]


def _asked(server: str, kind: str, *, stream: bool) -> str:
    """A request, probed or (`chat`) passed on. What a client is sent of a flood that is passed on, it may leave."""
    question = "A poem" if kind == "chat" else QUESTION
    body = chat_body(question, stream=stream, max_tokens=300)
    url, sent = f"{server}/v1/chat/completions", b""
    with httpx.stream("POST", url, json=body, timeout=LONG, trust_env=False) as reply:
        for part in reply.iter_raw():
            sent += part
            if kind == "chat" and len(sent) > 8 * MEGABYTE:
                return "left"
    if reply.status_code != 200:
        assert reply.status_code in (502, 504), (reply.status_code, sent[:500])
        assert json.loads(sent)["error"]["message"]
        return f"error {reply.status_code}"
    if kind == "chat":
        return "passed on"
    if not stream:
        assert kind == "answer" or json.loads(sent)["choices"][0]["message"]["content"] == ANSWER, sent[:500]
        return "answered"
    found = chunks(sent.decode())
    if any("error" in chunk for chunk in found):
        return "error in the stream"
    assert kind == "answer" or joined(found, "content") == ANSWER, sent[-500:]
    return "answered"


if __name__ == "__main__":
    serve_until_told(FloodingUpstream())
