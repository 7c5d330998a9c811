"""The small HTTP client, against a real server that writes what a test wants written, in the pieces it wants."""

from __future__ import annotations

import asyncio
import shutil
import ssl
import subprocess
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cgr.engines.completions.http1 import Client, HungUp, Lost, NoConnection, Silent, read_head

PLAIN = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n6;note=1\r\n world\r\n0\r\n\r\n"
UNTIL_CLOSED = b"HTTP/1.1 200 OK\r\n\r\nhello"


@dataclass
class Pieces:
    """Answers request after request on each connection: its own pieces each time, with a turn of the loop in between."""

    pieces: Sequence[bytes]
    stays: bool = True
    connections: int = 0
    heads: list[bytes] = field(default_factory=list)
    left: asyncio.Event = field(default_factory=asyncio.Event)
    tasks: set[asyncio.Task[None]] = field(default_factory=set)
    address: str = ""

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
async def server(*pieces: bytes, stays: bool = True) -> AsyncIterator[tuple[Pieces, Client]]:
    served = Pieces(pieces, stays)
    listening = await asyncio.start_server(served.answer, "127.0.0.1", 0)
    served.address = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/api"
    client = Client(served.address, {"Authorization": "Bearer secret"})
    async with listening:
        yield served, client
        await client.close()
        await asyncio.gather(*served.tasks)


async def body(client: Client) -> bytes:
    async with client.post("/completion", {"prompt": [1, 2], "text": "é"}) as reply:
        return await reply.read()


def cut_up(data: bytes, size: int) -> list[bytes]:
    return [data[start : start + size] for start in range(0, len(data), size)]


@pytest.mark.parametrize("size", [1, 3, 7, 1000])
@pytest.mark.parametrize(("said", "meant"), [(PLAIN, b"hello"), (CHUNKED, b"hello world")])
async def test_wherever_the_network_cuts(said: bytes, meant: bytes, size: int) -> None:
    async with server(*cut_up(said, size)) as (_, client):
        assert await body(client) == meant


async def test_a_body_that_lasts_as_long_as_the_connection() -> None:
    async with server(UNTIL_CLOSED, b" world", stays=False) as (_, client):
        assert await body(client) == b"hello world"


async def test_the_request() -> None:
    async with server(PLAIN) as (served, client):
        await body(client)
    assert served.heads[0].startswith(b"POST /api/completion HTTP/1.1\r\n")
    assert b"Authorization: Bearer secret\r\n" in served.heads[0]


async def test_a_connection_is_kept() -> None:
    async with server(PLAIN) as (served, client):
        assert [await body(client) for _ in range(3)] == [b"hello"] * 3
        assert served.connections == 1


async def test_two_at_once_have_two_connections() -> None:
    async with server(CHUNKED) as (served, client):
        await asyncio.gather(body(client), body(client))
        await asyncio.gather(body(client), body(client))
        assert served.connections == 2


async def test_a_connection_that_was_closed_meanwhile_is_not_used() -> None:
    async with server(PLAIN, stays=False) as (served, client):
        for _ in range(3):
            assert await body(client) == b"hello"
            await asyncio.sleep(0.01)
        assert served.connections == 3


async def test_a_server_that_says_it_will_close() -> None:
    async with server(PLAIN.replace(b"\r\n\r\n", b"\r\nConnection: Close\r\n\r\n")) as (served, client):
        await body(client)
        await body(client)
        assert served.connections == 2


async def test_leaving_early_hangs_up() -> None:
    async with server(CHUNKED[:-5]) as (served, client):
        async with client.post("/completion", {}) as reply:
            assert await anext(reply.parts()) == b"hello"
        await served.left.wait()


@pytest.mark.parametrize(
    "said",
    {
        "half a body": PLAIN[:-2],
        "half a head": PLAIN[:20],
        "chunks without an end": CHUNKED[:-5],
        "no HTTP": b"hello\r\n\r\n",
        "a length that is no number": PLAIN.replace(b"5\r", b"x\r"),
        "a negative length": PLAIN.replace(b"5\r", b"-5\r"),
        "a status that is no number": PLAIN.replace(b"200", b"abc"),
        "a chunk of no size": CHUNKED.replace(b"5\r", b"\r"),
    }.items(),
    ids=lambda one: one[0],
)
async def test_what_is_broken_is_an_error(said: tuple[str, bytes]) -> None:
    async with server(said[1], stays=False) as (_, client):
        with pytest.raises(Lost) as caught:
            await body(client)
    assert not isinstance(caught.value, HungUp)  # it said something: asking again is for others to decide


async def test_hung_up_before_anything_was_said() -> None:
    async with server(b"", stays=False) as (_, client):
        with pytest.raises(HungUp):
            await body(client)


async def test_nobody_there() -> None:
    async with server(PLAIN) as (_, client):
        pass
    with pytest.raises(NoConnection):
        await body(client)


async def test_a_server_that_hung_up_is_asked_again() -> None:
    async with server(b"", stays=False) as (served, client):
        with pytest.raises(HungUp):
            async with client.post("/completion", {}, tries=3):
                pass
        assert served.connections == 3


async def test_a_server_that_says_nothing() -> None:
    async with server(CHUNKED[:-5]) as (_, client), client.post("/completion", {}, patience=0.05) as reply:
        with pytest.raises(Silent, match="it said nothing for"):
            await reply.read()


async def test_no_more_at_once_than_these() -> None:
    async with server(CHUNKED) as (served, _):
        one = Client(served.address, {}, most=1)
        await asyncio.gather(*(body(one) for _ in range(5)))
        assert served.connections == 1
        await one.close()


async def test_a_server_waits_for_who_reads_slowly() -> None:
    """What nobody reads is not heaped up here."""
    size, count = 1 << 20, 64
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (size * count)
    async with server(head, *[bytes(size)] * count, stays=False) as (served, client):
        async with client.post("/completion", {}) as reply:
            await asyncio.sleep(0.2)
            assert not served.left.is_set()
            assert len(await reply.read()) == size * count
        await served.left.wait()


@pytest.mark.parametrize("said", [b"HTTP/1.1 100 Continue\r\n\r\n" + PLAIN, CHUNKED[:-2] + b"Checksum: 7\r\n\r\n"])
async def test_what_may_come_before_and_after(said: bytes) -> None:
    async with server(said) as (served, client):
        assert [await body(client) for _ in range(2)] in ([b"hello"] * 2, [b"hello world"] * 2)
        assert served.connections == 1


@pytest.mark.skipif(shutil.which("openssl") is None, reason="nothing here makes certificates")
async def test_over_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The certificate is checked: by those that the system trusts, or SSL_CERT_FILE."""
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost", "-days", "2"]
    made = [*make, "-addext", "subjectAltName=DNS:localhost", "-keyout", str(key), "-out", str(certificate)]
    await asyncio.to_thread(subprocess.run, made, check=True, capture_output=True)
    served = Pieces([CHUNKED])
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    listening = await asyncio.start_server(served.answer, "127.0.0.1", 0, ssl=context)
    address = f"https://localhost:{listening.sockets[0].getsockname()[1]}"
    async with listening:
        with pytest.raises(NoConnection, match="SSLCertVerificationError"):
            await body(Client(address, {}))
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        client = Client(address, {})
        assert [await body(client) for _ in range(2)] == [b"hello world"] * 2
        await client.close()
        await asyncio.gather(*served.tasks)
    assert served.connections == 1


def test_a_head() -> None:
    found = read_head(b"HTTP/1.1 404 Not Found\r\nCONTENT-LENGTH: 12\r\nconnection:close")
    assert (found.status, found.length, found.chunked, found.keep, found.is_error) == (404, 12, False, False, True)


@given(st.binary(max_size=80))
def test_any_head_is_read_or_refused(data: bytes) -> None:
    with suppress(Lost):
        assert read_head(b"HTTP/1.1 " + data).status >= 0
