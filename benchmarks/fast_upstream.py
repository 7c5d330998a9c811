"""A completions server like vLLM that costs almost nothing: `python -m benchmarks.fast_upstream`, a process of its own.

Its tokens are characters, beside three special ones. It thinks the same letter `--thinking` times, then ends its thinking
and writes `--answer` letters. A probe gets "42" with probability one half, so no rule stops. `--rate`: tokens a second of
each stream; 0: as fast as the reader reads. Frames are made once, and one timer serves all streams, as the steps of a real
engine do. `GET /usage` has the number of completions that are running.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import random
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice, repeat
from typing import Any, cast

import uvloop

OPEN, CLOSE, EOS = 1_200_001, 1_200_002, 1_200_003
SPECIAL = {"<think>": OPEN, "</think>": CLOSE, "<eos>": EOS}
NAMES = {number: text for text, number in SPECIAL.items()}
MODEL, CONTEXT = "fast-model", 32_768
ASK, LETTER, BURST = "\\boxed{", "x", 64
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
COMMON = {"id": "cmpl-" + "0" * 32, "object": "text_completion", "created": 1_700_000_000, "model": MODEL}
HALF = math.log(0.5)


def encode(text: str) -> list[int]:
    """The ids of a text."""
    parts = re.split("(<think>|</think>|<eos>)", text)
    return [number for part in parts for number in ([SPECIAL[part]] if part in SPECIAL else map(ord, part))]


def decode(ids: Sequence[int]) -> str:
    """The text of these ids."""
    return "".join(NAMES.get(one) or chr(one) for one in ids)


def chunk(data: bytes) -> bytes:
    """A part of a body in HTTP's chunked encoding."""
    return b"%x\r\n%s\r\n" % (len(data), data)


def logprobs_of(token: int, top: int) -> dict[str, Any]:
    """The chosen token has one half; so has "a" if another was chosen in its place."""
    others = [ord(one) for one in "abcdefgh" if ord(one) != token][: max(top - 1, 0)]
    names = {f"token_id:{token}": HALF} | {f"token_id:{one}": HALF if one == ord("a") else -7.0 for one in others}
    return {"tokens": [f"token_id:{token}"], "token_logprobs": [HALF], "top_logprobs": [names]}


def choice_of(token: int, finish: str | None = None, top: int | None = None) -> dict[str, Any]:
    """One token as vLLM writes it."""
    text = "" if token == EOS else decode([token])
    logprobs = None if top is None else logprobs_of(token, top)
    stops = {"finish_reason": finish, "stop_reason": None}
    return {"index": 0, "text": text, "logprobs": logprobs, **stops, "token_ids": [token], "prompt_token_ids": None}


def frame(token: int, finish: str | None = None, top: int | None = None, usage: dict[str, Any] | None = None) -> bytes:
    """An event of a stream."""
    event = COMMON | {"choices": [choice_of(token, finish, top)], "usage": usage}
    return chunk(b"data: " + json.dumps(event, separators=(",", ":")).encode() + b"\n\n")


PLAIN, ENDS_THINKING, ENDS_TURN = frame(ord(LETTER)), frame(CLOSE), frame(EOS, "stop")
LAST = chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n"


@dataclass
class Upstream:
    """What it thinks and writes, and the streams that run."""

    thinking: int
    answer: int
    rate: float
    streams: set[Stream] = field(default_factory=set)

    def frames(self, ids: Sequence[int], body: dict[str, Any]) -> Iterator[bytes]:
        """The events of a completion after these ids."""
        count = body["max_tokens"]
        if body.get("logprobs") and body["temperature"] == 0:
            return self._probe(ids, body)
        since = ids[len(ids) - 1 - list(reversed(ids)).index(OPEN) + 1 :]
        closed = CLOSE in since
        thought = 0 if closed else max(self.thinking - len(since), 0)
        whole = chain(
            () if closed else chain(repeat(PLAIN, thought), (ENDS_THINKING,)), repeat(PLAIN, self.answer), (ENDS_TURN,)
        )
        total = self.answer + 1 + (0 if closed else thought + 1)
        if count >= total:
            return whole
        return chain(islice(whole, count - 1), (frame(ord(LETTER), "length"),))

    def _probe(self, ids: Sequence[int], body: dict[str, Any]) -> Iterator[bytes]:
        cached = len(ids) // 16 * 16
        usage = {"prompt_tokens": len(ids), "prompt_tokens_details": {"cached_tokens": cached}}
        tokens = [*map(ord, "42}"), EOS][: body["max_tokens"]]
        for number, token in enumerate(tokens, start=1):
            finish = "stop" if token == EOS else "length" if number == body["max_tokens"] else None
            yield frame(token, finish, body["logprobs"], usage if finish else None)

    def whole(self, body: dict[str, Any]) -> dict[str, Any]:
        """A reply that is not streamed: what an engine asks when it connects."""
        ids = body["prompt"]
        banned = set(map(int, body.get("logit_bias") or {}))
        letters, chance = [ord(one) for one in "abcdefgh" if ord(one) not in banned], random.Random(body.get("seed"))
        count, greedy = body["max_tokens"], not body["temperature"]
        tokens = [letters[0] if greedy else chance.choice(letters) for _ in range(count)]
        choice = choice_of(tokens[0], "length", body.get("logprobs")) | {"text": decode(tokens), "token_ids": tokens}
        usage = {"prompt_tokens": len(ids), "prompt_tokens_details": {"cached_tokens": len(ids) // 16 * 16}}
        return COMMON | {"choices": [choice], "usage": usage}

    async def run(self) -> None:
        """Serve all streams that are paced, at a steady rate."""
        while True:
            await asyncio.sleep(1 / self.rate)
            now = time.perf_counter()
            for stream in tuple(self.streams):
                stream.send_due(now, self.rate)


class Stream:
    """One streamed completion."""

    def __init__(self, connection: Connection, frames: Iterator[bytes]) -> None:
        self.connection, self.frames = connection, frames
        self.began, self.sent = time.perf_counter(), 0

    def send_due(self, now: float, rate: float) -> None:
        """Send the tokens whose time has come."""
        self.send(int((now - self.began) * rate) - self.sent)

    def send(self, count: int) -> None:
        """Send this many tokens."""
        if count <= 0:
            return
        found = list(islice(self.frames, count))
        self.sent += len(found)
        over = len(found) < count
        self.connection.transport.write(b"".join(found) + (LAST if over else b""))
        if over:
            self.connection.finish()


class Connection(asyncio.Protocol):
    """A connection: one request after the other."""

    transport: asyncio.Transport

    def __init__(self, upstream: Upstream) -> None:
        self.upstream, self.buffer, self.stream = upstream, b"", None  # type: tuple[Upstream, bytes, Stream | None]
        self.writing = asyncio.Event()
        self.writing.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's class is another one

    def connection_lost(self, exc: Exception | None) -> None:
        self.finish()
        self.writing.set()

    def pause_writing(self) -> None:
        self.writing.clear()

    def resume_writing(self) -> None:
        self.writing.set()

    def finish(self) -> None:
        """The stream of this connection is over."""
        if self.stream:
            self.upstream.streams.discard(self.stream)
            self.stream = None

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        head, found, rest = self.buffer.partition(b"\r\n\r\n")
        if not found:
            return
        length = next((int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), 0)
        if len(rest) < length:
            return
        self.buffer = rest[length:]
        path = head.split(b" ", 2)[1].decode()
        self.handle(path, json.loads(rest[:length]) if length else {})

    def handle(self, path: str, body: dict[str, Any]) -> None:
        """Reply to a request."""
        if path == "/v1/completions" and body.get("stream"):
            self.start(body)
            return
        replies: dict[str, Callable[[], dict[str, Any]]] = {
            "/v1/models": lambda: {"data": [{"id": MODEL, "owned_by": "vllm", "max_model_len": CONTEXT}]},
            "/v1/completions": lambda: self.upstream.whole(body),
            "/tokenize": lambda: {"tokens": encode(body.get("prompt") or rendered(body["messages"]))},
            "/detokenize": lambda: {"prompt": decode(body["tokens"])},
            "/usage": lambda: {"running": len(self.upstream.streams)},
        }
        data = json.dumps(replies[path]() if path in replies else {}).encode()
        status = b"200 OK" if path in replies else b"404 Not Found"
        head = b"HTTP/1.1 %s\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % (status, len(data))
        self.transport.write(head + data)

    def start(self, body: dict[str, Any]) -> None:
        """Begin a stream."""
        ids = body["prompt"] if isinstance(body["prompt"], list) else encode(body["prompt"])
        self.transport.write(HEAD)
        if OPEN not in ids:
            tokens = self.upstream.whole(body)["choices"][0]["token_ids"]
            finishes = [None] * (len(tokens) - 1) + ["length"]
            self.transport.write(b"".join(map(frame, tokens, finishes)) + LAST)
            return
        self.stream = Stream(self, self.upstream.frames(ids, body))
        self.upstream.streams.add(self.stream)
        if not self.upstream.rate:
            asyncio.get_running_loop().create_task(self.send_all(self.stream))

    async def send_all(self, stream: Stream) -> None:
        """Send a stream as fast as it is read."""
        while self.stream is stream:
            stream.send(BURST)
            await self.writing.wait()
            await asyncio.sleep(0)


def rendered(messages: Sequence[dict[str, str]]) -> str:
    """The chat template."""
    return "".join(f"{one['role']}: {one['content']}\n" for one in messages) + "<think>"


async def serve(upstream: Upstream) -> None:
    """Listen on a free port and print it."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(upstream), "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)  # noqa: T201 - the parent reads it
    await (upstream.run() if upstream.rate else server.serve_forever())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--thinking", type=int, default=2048, help="tokens of thinking")
    parser.add_argument("--answer", type=int, default=32, help="tokens of the answer")
    parser.add_argument("--rate", type=float, default=50.0, help="tokens a second of each stream; 0: without pause")
    options = parser.parse_args()
    uvloop.run(serve(Upstream(options.thinking, options.answer, options.rate)))


if __name__ == "__main__":
    main()
