"""Passes requests on to the upstream as they are, and its replies back, byte by byte. Only a `cgr` object is added."""

from __future__ import annotations

import asyncio
import json
import re
import ssl
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import orjson

from cgr.engines.base import Engine
from cgr.engines.completions.client import Pool
from cgr.engines.completions.engine import CompletionsEngine
from cgr.engines.completions.http import LOOPBACK, WRONG_KEY, BadReply, Fault, Server, read_body
from cgr.engines.completions.silence import NOT_WAITING, watched
from cgr.engines.forwarding import ForwardingEngine
from cgr.server.exchange import NOT_HELD_BACK, EventWriter, Exchange, milliseconds
from cgr.server.faults import MESSAGES_PATH, ApiError, messages_error
from cgr.server.metrics import Metrics
from cgr.server.record.replies import ReplyCopy
from cgr.server.result import not_probed

# What a client may tell the upstream: its key is ours, and so is its address.
PASSED_HEADERS = (
    "content-type", "accept", "user-agent", "x-session-id", "x-smg-routing-key", "traceparent", "tracestate",
    "anthropic-version", "anthropic-beta",
)  # fmt: skip
# What an upstream may tell the client.
KEPT_HEADERS = ("content-type", "retry-after", "retry-after-ms", "cache-control", "x-should-retry")
MAX_LINE = 1 << 20  # bytes of a line of a stream that are held back at most
CONNECT_SECONDS = 10.0
NO_ENDPOINT = (404, 405, 501)
RESPONSES_PATH = "/v1/responses"
# How the line of a stream looks that gets our object, and what our object is put after.
LAST_LINES = {
    RESPONSES_PATH: (
        re.compile(rb'"type":\s*"response\.(?:completed|incomplete|failed)"'),
        re.compile(rb'"response":\s*\{'),
    ),
    MESSAGES_PATH: (re.compile(rb'"type":\s*"message_delta"'), re.compile(rb"\{")),
}
EVENT_ENDS = (b"\n\n", b"\r\n\r\n")
LAST_CHUNK = (re.compile(rb'"finish_reason":\s?"'), re.compile(rb"\{"))


class Proxy:
    """Passes requests on to the servers of an engine, the least loaded first. `ping`, `patience`: as in `EventWriter`."""

    def __init__(self, engine: Engine, metrics: Metrics, ping: float, patience: float) -> None:
        thinks = engine.engine if isinstance(engine, ForwardingEngine) else engine  # the one that is not only probed
        assert isinstance(thinks, CompletionsEngine)
        self.engine, self.metrics = thinks, metrics
        self._ping, self._patience = ping, patience
        self._paths: dict[str, bool] = {}
        key, addresses = thinks.connected.key, thinks.connected.addresses
        tls = any(address.startswith("https:") for address in addresses)
        local = all(urlsplit(address).hostname in LOOPBACK for address in addresses)
        self._client = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=ssl.create_default_context() if tls else True),
            headers={"Accept-Encoding": "identity"} | ({"Authorization": f"Bearer {key}"} if key else {}),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS, sock_read=None),
            auto_decompress=False,
            trust_env=not local,
        )

    @property
    def pool(self) -> Pool:
        """The servers."""
        return self.engine.pool

    async def close(self) -> None:
        """Close all connections."""
        await self._client.close()

    async def models(self) -> dict[str, Any]:
        """The upstream's list of models."""
        async with self._request("GET", "/v1/models", b"", {}) as response:
            try:
                found = orjson.loads(await _whole(response)) if response.status == 200 else None
            except orjson.JSONDecodeError:
                found = None
            if not isinstance(found, dict):
                raise ApiError(502, "The upstream lists no models.", code="upstream_error")
            return found

    async def is_up(self) -> bool:
        """Whether one of the servers answers."""
        for server in self.pool.servers:
            try:
                if await server.is_up("/v1/models"):
                    return True
            except Fault:
                continue
        return False

    async def has(self, path: str) -> bool:
        """Whether the upstream has an endpoint at this path: an empty body is an error of another kind there."""
        if path not in self._paths:
            async with self._request("POST", path, b"{}", {"content-type": "application/json"}) as response:
                await _whole(response)
                self._paths[path] = response.status not in NO_ENDPOINT
        return self._paths[path]

    async def pass_on(
        self, exchange: Exchange, body: bytes, why: str, model: str, copy: ReplyCopy | None = None, *, quiet: bool = False
    ) -> None:
        """Send this request to an upstream, and its reply to the client. `model`: what the upstream calls it. `copy`: gets
        the bytes of the reply too. `quiet`: without an object of ours."""
        headers = {name: exchange.headers[name] for name in PASSED_HEADERS if name in exchange.headers}
        path = exchange.scope["path"]
        async with self._request("POST", path, _cleaned(body, model), headers) as response:
            if response.status in WRONG_KEY:
                raise ApiError(502, "The upstream refused the key of this server.", code="upstream_error")
            ours = b"" if quiet else b'"cgr":' + orjson.dumps(not_probed(why)) + b","
            await self._reply(exchange, response, ours, copy.add if copy else lambda data: None)

    async def _reply(
        self, exchange: Exchange, response: aiohttp.ClientResponse, ours: bytes, copied: Callable[[bytes], None]
    ) -> None:
        headers = {name: response.headers[name] for name in KEPT_HEADERS if name in response.headers}
        headers |= {"x-cgr-stop-cause": "not_probed", "x-cgr-overhead-ms": milliseconds(exchange.overhead)}
        if "text/event-stream" in headers.get("content-type", ""):
            await exchange.start(response.status, headers | NOT_HELD_BACK)
            await self._stream(exchange, response, ours, copied)
            return
        try:
            data = await _whole(response)
        except (aiohttp.ClientError, TimeoutError) as error:
            raise _broke_off() from error
        copied(data)
        await exchange.reply(response.status, _with_first(data, ours) if response.status == 200 else data, headers)

    async def _stream(
        self, exchange: Exchange, response: aiohttp.ClientResponse, ours: bytes, copied: Callable[[bytes], None]
    ) -> None:
        writer, path = EventWriter(exchange, self._ping, self._patience), exchange.scope["path"]
        longest = self.pool.policy.first  # with pings, a client would wait for a dead upstream for ever
        silence = watched(response, longest, longest)
        finish, lines, complete = LAST_LINES.get(path, LAST_CHUNK)[0], b"", False
        try:
            async for lines in _lines(response.content):
                silence.since = NOT_WAITING
                copied(lines)
                last = finish.search(lines) is not None
                writer.add(_with_result(lines, ours, path) if last else lines)
                writer.between, complete = lines.endswith(EVENT_ENDS), complete or last
                await writer.flush()
                silence.since = time.monotonic()
            if not complete and not _says_end(lines):
                raise _broke_off()
            await writer.flush(more=False)
        except (aiohttp.ClientError, TimeoutError, ApiError, asyncio.CancelledError) as error:
            failure = exchange.ending if isinstance(error, asyncio.CancelledError) else _broke_off()
            if failure is None:
                raise
            writer.add((b"" if writer.between else b"\n\n") + _broken(path, failure))
            await writer.flush(more=False)
            raise failure from error
        finally:
            silence.close()
            await writer.close()

    @asynccontextmanager
    async def _request(
        self, method: str, path: str, body: bytes, headers: Mapping[str, str]
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """The reply of the first server that can be reached; leaving early closes the connection to it."""
        left = len(self.pool.servers)
        while True:
            server, left = self.pool.least_loaded(), left - 1
            try:
                response = await self._client.request(method, server.address + path, data=body or None, headers=headers)
            except (aiohttp.ClientError, TimeoutError) as error:
                self.metrics.observe_upstream(server.address, "other", "error")
                server.failed(Fault("it could not be reached", unreachable=True))
                if left > 0:
                    continue
                raise ApiError(502, "The upstream cannot be reached.", code="upstream_error") from error
            break
        server.load += 1
        try:
            yield response
        finally:
            self._leave(server, response)

    def _leave(self, server: Server, response: aiohttp.ClientResponse) -> None:
        server.load -= 1
        whole = response.content.at_eof()
        self.metrics.observe_upstream(server.address, "other", str(response.status) if whole else "cancelled")
        (response.release if whole else response.close)()


async def _whole(response: aiohttp.ClientResponse) -> bytes:
    """The body of a reply, unless it is too long to be kept."""
    try:
        return await read_body(response)
    except BadReply as error:
        raise ApiError(502, f"The upstream failed: {error.what}.", code="upstream_error") from error


def _cleaned(body: bytes, model: str) -> bytes:
    """The body without what is ours: it stays as it is, unless it has a `cgr` object or an alias."""
    if b'"cgr"' not in body and b":" not in _model_in(body):
        return body
    data = orjson.loads(body)
    changed = {name: value for name, value in data.items() if name != "cgr"}
    if "model" in changed:
        changed["model"] = model
    return body if changed == data else json.dumps(changed, ensure_ascii=False).encode()


def _model_in(body: bytes) -> bytes:
    name = orjson.loads(body).get("model")
    return name.encode() if isinstance(name, str) else b""


def _with_first(data: bytes, ours: bytes) -> bytes:
    """A JSON object with ours as its first field; anything else as it is."""
    text = data.lstrip()
    return data.replace(b"{", b"{" + ours, 1) if text[:1] == b"{" and text[1:].lstrip()[:1] != b"}" else data


def _broke_off() -> ApiError:
    """A new one each time: an exception keeps where it was raised."""
    return ApiError(502, "The upstream broke off in the middle of its reply.", code="upstream_error")


def _broken(path: str, error: ApiError) -> bytes:
    """The end of a stream that broke off."""
    if path == MESSAGES_PATH:
        return b"event: error\ndata: " + orjson.dumps(messages_error(error)) + b"\n\n"
    if path == RESPONSES_PATH:
        fields = {"type": "error", "code": error.code, "message": error.message, "param": None}
        return b"event: error\ndata: " + orjson.dumps(fields | error.body()) + b"\n\n"
    return b"data: " + orjson.dumps(error.body()) + b"\n\ndata: [DONE]\n\n"


async def _lines(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """What arrives, in whole lines: half an event is of no use to anybody."""
    rest = b""
    while chunk := await content.readany():
        data = rest + chunk
        end = data.rfind(b"\n") + 1 if len(data) < MAX_LINE else len(data)
        rest = data[end:]
        if end:
            yield data[:end]
    if rest:
        yield rest


def _says_end(lines: bytes) -> bool:
    """Whether the last lines of a stream say that it is over, or that it failed. In a text, quotes would be escaped."""
    return lines.rstrip().endswith(b"[DONE]") or b'"error"' in lines


def _with_result(lines: bytes, ours: bytes, path: str) -> bytes:
    """The lines with our object in the one that says how the reply ended."""
    last, place = LAST_LINES.get(path, LAST_CHUNK)
    if not ours:
        return lines
    return b"\n".join(
        place.sub(lambda found: found[0] + ours, line, count=1) if last.search(line) else line
        for line in lines.split(b"\n")
    )
