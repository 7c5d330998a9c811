"""HTTP to one server, against a real one that writes what a test wants written, in the pieces it wants."""

from __future__ import annotations

import asyncio
import gzip
import json
import shutil
import ssl
import subprocess
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from cgr.engines.completions import http
from cgr.engines.completions.http import BadReply, Fault, Server, WrongKey, read_event
from cgr.engines.completions.policy import RetryPolicy, retry_after
from cgr.errors import DoesNotFit, EngineError

SHORT = RetryPolicy(first=5.0, stall=5.0, connect=5.0)
DOCUMENT = b'HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\n{"a": 1}'
EVENTS = b'data: {"n": 1}\n\ndata: {"n": 2}\n\n: ping\n\ndata: [DONE]\n\n'
STREAM = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (len(EVENTS), EVENTS)


@dataclass
class Pieces:
    """Answers request after request on each connection with the same pieces, and lets the event loop run in between."""

    pieces: Sequence[bytes]
    stays: bool = True
    connections: int = 0
    heads: list[bytes] = field(default_factory=list)
    left: asyncio.Event = field(default_factory=asyncio.Event)
    tasks: set[asyncio.Task[None]] = field(default_factory=set)

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.tasks.add(cast("asyncio.Task[None]", asyncio.current_task()))
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                self.heads.append(head)
                await reader.readexactly(int(head.split(b"Content-Length: ")[1].split(b"\r\n")[0]))
                for piece in self.pieces:
                    writer.write(piece)
                    await writer.drain()
                    await asyncio.sleep(0)
                if not self.stays:
                    break
        self.left.set()
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


@asynccontextmanager
async def serving(
    *pieces: bytes, stays: bool = True, policy: RetryPolicy = SHORT, connections: int = 0
) -> AsyncIterator[tuple[Pieces, Server]]:
    served = Pieces(pieces, stays)
    listening = await asyncio.start_server(served.answer, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    server = Server(f"http://127.0.0.1:{port}/api", "secret", policy, connections)
    async with listening:
        yield served, server
        await server.close()
        await asyncio.gather(*served.tasks)


async def document(server: Server) -> dict[str, Any]:
    return await server.post("/completion", {"prompt": [1, 2], "text": "é"})


async def events(server: Server) -> list[dict[str, Any]]:
    async with server.events("/completion", {"stream": True}, dict) as reads:
        return [event async for arrived in reads for event in arrived]


def cut_up(data: bytes, size: int) -> list[bytes]:
    return [data[start : start + size] for start in range(0, len(data), size)]


@pytest.mark.parametrize("size", [1, 3, 7, 1000])
async def test_replies_are_read_wherever_the_network_cuts_them(size: int) -> None:
    async with serving(*cut_up(DOCUMENT, size)) as (_, server):
        assert await document(server) == {"a": 1}
    async with serving(*cut_up(STREAM, size)) as (_, server):
        assert await events(server) == [{"n": 1}, {"n": 2}]


async def test_the_request() -> None:
    async with serving(DOCUMENT) as (served, server):
        await document(server)
    assert served.heads[0].startswith(b"POST /api/completion HTTP/1.1\r\n")
    assert b"Authorization: Bearer secret\r\n" in served.heads[0]
    assert b"Content-Type: application/json\r\n" in served.heads[0]


async def test_a_connection_is_used_again() -> None:
    async with serving(DOCUMENT) as (served, server):
        assert [await document(server) for _ in range(3)] == [{"a": 1}] * 3
        assert served.connections == 1


async def test_the_number_of_connections_is_limited() -> None:
    async with serving(STREAM, connections=1) as (served, server):
        await asyncio.gather(*(events(server) for _ in range(5)))
        assert served.connections == 1
    async with serving(STREAM) as (served, server):
        await asyncio.gather(events(server), events(server))
        assert served.connections == 2


async def test_leaving_a_stream_closes_the_connection() -> None:
    """This cancels the completion on the server."""
    async with serving(STREAM[:-5]) as (served, server):
        async with server.events("/completion", {}, dict) as reads:
            assert next(await anext(reads)) == {"n": 1}
        await served.left.wait()


@pytest.mark.parametrize(
    "reply",
    {
        "half a body": DOCUMENT[:-2],
        "half a head": DOCUMENT[:20],
        "chunks without an end": STREAM[:-5],
        "no HTTP": b"hello\r\n\r\n",
        "a length that is no number": DOCUMENT.replace(b"8\r", b"x\r"),
        "a status that is no number": DOCUMENT.replace(b"200", b"abc"),
        "an error without a body": b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n",
    }.items(),
    ids=lambda one: one[0],
)
@pytest.mark.parametrize("call", [document, events])
async def test_a_broken_reply_is_a_fault(reply: tuple[str, bytes], call: Any) -> None:
    async with serving(reply[1], stays=False) as (_, server):
        with pytest.raises(Fault) as caught:
            await call(server)
    assert reply[0] == "half a head" or not caught.value.disconnected


@pytest.mark.parametrize("body", [b"hello 12", b"[1, 2,3]"])
async def test_a_document_that_is_no_json_object(body: bytes) -> None:
    async with serving(DOCUMENT.replace(b'{"a": 1}', body)) as (_, server):
        with pytest.raises(BadReply):
            await document(server)


async def test_a_server_that_disconnects_before_it_replies() -> None:
    async with serving(b"", stays=False) as (_, server):
        with pytest.raises(Fault) as caught:
            await document(server)
    assert caught.value.disconnected


async def test_nobody_there() -> None:
    async with serving(DOCUMENT) as (_, server):
        pass
    with pytest.raises(Fault, match="could not be reached") as caught:
        await document(server)
    await server.close()
    assert caught.value.unreachable
    assert not caught.value.disconnected


@pytest.mark.parametrize("call", [document, events])
async def test_a_server_that_sends_nothing(call: Any) -> None:
    async with serving(STREAM[:60], policy=RetryPolicy(first=0.05, stall=0.05)) as (_, server):
        with pytest.raises(Fault, match=r"it sent nothing for 0\.05 seconds"):
            await call(server)


async def test_a_server_waits_for_a_slow_reader() -> None:
    """What nobody reads does not pile up here."""
    line = b"data: " + json.dumps({"text": "x" * (1 << 16)}).encode() + b"\n\n"
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (len(line) * 512)
    async with serving(head, *[line] * 512, stays=False) as (served, server):
        async with server.events("/completion", {}, dict) as reads:
            await asyncio.sleep(0.2)
            assert not served.left.is_set()
            assert len([event async for arrived in reads for event in arrived]) == 512
        await served.left.wait()


async def test_events_before_a_faulty_one_of_the_same_read_are_given() -> None:
    data = b'data: {"n": 1}\n\ndata: {"n": 2}\n\ndata: {"n"\n\n'
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(data)
    given: list[dict[str, Any]] = []
    async with serving(head + data) as (_, server), server.events("/completion", {}, dict) as reads:
        with pytest.raises(BadReply, match="not JSON"):
            given.extend(await anext(reads))
    assert given == [{"n": 1}, {"n": 2}]


async def test_an_endless_line_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "MAX_LINE_BYTES", 1000)
    head = b"HTTP/1.1 200 OK\r\n\r\n"
    async with serving(head, b"data: " + b"x" * 5000, stays=False) as (_, server):
        with pytest.raises(BadReply, match="more than 1000 bytes"):
            await events(server)


@pytest.mark.parametrize(
    "head",
    [b"HTTP/1.1 200 OK\r\nContent-Length: 99000000000\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\n"],
    ids=["it promises 99 GB", "it does not end"],
)
async def test_a_reply_that_is_too_long(head: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not read, or not to its end."""
    monkeypatch.setattr(http, "MAX_BODY_BYTES", 1 << 20)
    async with serving(head, *[b"x" * 65536] * 64, stays=False) as (_, server):
        with pytest.raises(BadReply, match="a reply of more than 1 MB"):
            await document(server)


async def test_a_long_message_of_a_server_is_shortened() -> None:
    error = json.dumps({"error": {"message": "x" * 10_000}}).encode()
    head = b"HTTP/1.1 400 Bad Request\r\nContent-Length: %d\r\n\r\n" % len(error)
    async with serving(head, error) as (_, server):
        with pytest.raises(EngineError) as caught:
            await document(server)
    assert len(caught.value.message) < 400


async def test_a_compressed_reply() -> None:
    body = gzip.compress(b'{"a": 1}')
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(body)
    async with serving(head + body) as (_, server):
        assert await document(server) == {"a": 1}


async def test_the_proxy_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Used for servers elsewhere, never for one on this machine."""
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    async with serving(DOCUMENT) as (proxy, local):
        monkeypatch.setenv("HTTP_PROXY", local.address.removesuffix("/api"))
        far = Server("http://models.example", None, SHORT)
        assert await document(far) == {"a": 1}
        await far.close()
        assert proxy.heads[0].startswith(b"POST http://models.example/completion HTTP/1.1")
        await document(local)
        assert proxy.heads[1].startswith(b"POST /api/completion")


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")
async def test_over_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The certificate is checked: against those that the system trusts, or SSL_CERT_FILE."""
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost", "-days", "2"]
    made = [*make, "-addext", "subjectAltName=DNS:localhost", "-keyout", str(key), "-out", str(certificate)]
    await asyncio.to_thread(subprocess.run, made, check=True, capture_output=True)
    served = Pieces([STREAM])
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    listening = await asyncio.start_server(served.answer, "127.0.0.1", 0, ssl=context)
    address = f"https://localhost:{listening.sockets[0].getsockname()[1]}"
    async with listening:
        stranger = Server(address, None, SHORT)
        with pytest.raises(Fault, match="could not be reached"):
            await events(stranger)
        await stranger.close()
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        server = Server(address, None, SHORT)
        assert [await events(server) for _ in range(2)] == [[{"n": 1}, {"n": 2}]] * 2
        await server.close()
        await asyncio.gather(*served.tasks)
    assert served.connections == 1


@pytest.mark.parametrize(
    ("status", "error", "kind", "message"),
    [
        ("401 Unauthorized", {"message": "no"}, WrongKey, "refused the API key: no"),
        ("503 Busy", "loading", Fault, "it answered 503: loading"),
        ("400 Bad", {"message": "no such model"}, EngineError, "The server refused: no such model"),
        ("400 Bad", {"message": "too long", "type": "exceed_context_size_error"}, DoesNotFit, "out of context"),
        ("400 Bad", {"message": "too long", "code": "context_length_exceeded"}, DoesNotFit, "out of context"),
        ("400 Bad", {"message": "the context field is unknown"}, EngineError, "The server refused"),
    ],
)
async def test_errors_that_a_server_reports(status: str, error: Any, kind: type[Exception], message: str) -> None:
    """They are told apart by status, type and code, never by the words of the message."""
    body = json.dumps({"error": error}).encode()
    head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    async with serving(head + body) as (_, server):
        with pytest.raises(kind, match=message):
            await document(server)
        with pytest.raises(kind, match=message):
            await events(server)


def test_lines_of_a_stream() -> None:
    assert read_event(b'data: {"a": 1}\r') == {"a": 1}
    assert read_event(b'data:{"a": 1}') == {"a": 1}
    for line in (b"", b": ping", b"event: x", b"data: [DONE]", b"id: 7"):
        assert read_event(line) is None
    with pytest.raises(BadReply):
        read_event(b"data: hello")
    with pytest.raises(Fault, match="500: out of luck"):
        read_event(b'error: {"message": "out of luck"}')
    with pytest.raises(EngineError, match="out of luck"):
        read_event(b'data: {"error": {"message": "out of luck", "code": 400}}')


def test_retry_after() -> None:
    assert retry_after({"Retry-After": "7"}) == 7.0
    assert retry_after({"Retry-After": "0.5"}) == 0.5
    assert retry_after({"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}) == 0.0
    assert retry_after({"Retry-After": "soon"}) is None
    assert retry_after({}) is None
