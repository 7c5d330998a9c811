"""A real HTTP server on loopback that says what a test wants said, however wrong."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Request:
    path: str
    headers: dict[str, str]
    body: dict[str, Any]


@dataclass
class Serving:
    """Gives its replies in turn, the last one again and again; keeps what it was asked."""

    replies: list[bytes]
    requests: list[Request] = field(default_factory=list)
    address: str = ""

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            self.requests.append(await _request(reader))
            writer.write(self.replies.pop(0) if len(self.replies) > 1 else self.replies[0])
            await writer.drain()
        finally:
            writer.close()


async def _request(reader: asyncio.StreamReader) -> Request:
    first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().strip().split("\r\n")
    headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return Request(first.split()[1], headers, json.loads(body or b"{}"))


@asynccontextmanager
async def serving(*replies: bytes) -> AsyncIterator[Serving]:
    served = Serving(list(replies))
    server = await asyncio.start_server(served.answer, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    served.address = f"http://{host}:{port}"
    async with server:
        yield served


def reply(body: bytes, status: str = "200 OK", kind: str = "application/json", length: int | None = None) -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body) if length is None else length}\r\n"
    return head.encode() + b"Connection: close\r\n\r\n" + body


def document(value: object, status: str = "200 OK") -> bytes:
    return reply(json.dumps(value).encode(), status)


def events(*values: object) -> bytes:
    """A whole stream of server-sent events."""
    return reply(b"".join(map(event, values)), kind="text/event-stream")


def event(value: object) -> bytes:
    return b"data: " + (value if isinstance(value, bytes) else json.dumps(value).encode()) + b"\n\n"


def cut(stream: bytes) -> bytes:
    """A stream in chunks whose last chunk never comes."""
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    return head + f"{len(stream):x}\r\n".encode() + stream + b"\r\n"


def piece(*ids: int, text: str = "", stop: str | None = None, **more: object) -> dict[str, object]:
    """One event, or one whole completion, in llama.cpp's words."""
    ending = {"stop": True, "stop_type": stop} if stop else {"stop": False}
    return {"content": text, "tokens": list(ids), **ending, **more}


def scored(*tokens: tuple[int, bytes, float], **more: object) -> dict[str, object]:
    """An event with log-probabilities."""
    return piece(*(token for token, _, _ in tokens), **more, completion_probabilities=_scores(tokens))  # type: ignore[arg-type]


def _scores(tokens: Sequence[tuple[int, bytes, float]]) -> list[dict[str, object]]:
    return [
        {"id": token, "bytes": list(raw), "logprob": logprob, "top_logprobs": [{"id": token, "logprob": logprob}]}
        for token, raw, logprob in tokens
    ]
