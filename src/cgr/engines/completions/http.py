"""HTTP to one completions server, by aiohttp: JSON requests, JSON replies and server-sent events. One attempt each.

A failure that may pass (time-outs, resets, 429, 5xx, an incomplete stream, malformed JSON) is a `Fault`, which client.py
tries again; anything else is an error at once.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing, nullcontext, suppress
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar
from urllib.parse import urlsplit

import aiohttp

from cgr.engines.completions.json_text import dumps, loads
from cgr.engines.completions.lines import Lines
from cgr.engines.completions.policy import RetryPolicy, retry_after
from cgr.engines.completions.silence import NOT_WAITING, Silence, watched
from cgr.errors import CgrError, DoesNotFit, EngineError, Refused, UsageError

T = TypeVar("T")
TEMPORARY = {408, 425, 429, 500, 502, 503, 504}
ABSENT = {404, 405, 501}
WRONG_KEY = {401, 403}
WRONG_REQUEST = {400, 422}
LOOPBACK = {"127.0.0.1", "localhost", "::1"}
CONTEXT_ERRORS = {"exceed_context_size_error", "context_length_exceeded"}  # llama.cpp's error type, OpenAI's error code
RequestKind = Literal["think", "probe", "answer", "other"]
Observe = Callable[[str, RequestKind, str], None]  # address, kind, and the status code, "error" or "cancelled"
MAX_LINE_BYTES = 1 << 22  # of one event; 1,000 alternatives of a token take 100 KB. A longer one is not understood
MAX_BODY_BYTES = 1 << 26  # of a whole reply: far more than any completion or tokenization takes
MAX_MESSAGE = 300  # characters of a server's own message in an error


@dataclass(frozen=True, slots=True)
class Purpose:
    """What a request is for, and the headers that go with it."""

    kind: RequestKind = "other"
    headers: Mapping[str, str] | None = None


class Fault(Exception):
    """A failure that may pass. `wait`: seconds that the server asked for; `unreachable`: there was no connection;
    `disconnected`: the connection ended before the server replied."""

    def __init__(
        self, what: str, wait: float | None = None, *, unreachable: bool = False, disconnected: bool = False
    ) -> None:
        super().__init__(what)
        self.what, self.wait, self.unreachable, self.disconnected = what, wait, unreachable, disconnected


class BadReply(Fault):
    """A reply that is incomplete or not understood."""


class WrongKey(UsageError):
    """The server refused the API key."""


class Server:
    """One server, used from one event loop. `connections`: requests in flight at most; further ones wait. `observe` is
    called after each request. `turn` is held by a chunk of thinking or a probe while it is computed."""

    def __init__(
        self, address: str, key: str | None, policy: RetryPolicy, connections: int = 0, observe: Observe | None = None
    ) -> None:
        self.address, self.policy, self._observe = address, policy, observe
        self._draining: set[asyncio.Task[None]] = set()
        self.turn: AbstractAsyncContextManager[None] = nullcontext()
        self.load, self.failures, self.avoid_until = 0, 0, 0.0
        self._key, self._connections = key, connections
        self._client: aiohttp.ClientSession | None = None

    @property
    def avoided(self) -> bool:
        """Whether the server failed a short time ago."""
        return time.monotonic() < self.avoid_until

    def succeeded(self) -> None:
        """Note a success: the server is no longer avoided."""
        self.failures, self.avoid_until = 0, 0.0

    def failed(self, fault: Fault) -> None:
        """Avoid the server for a while, longer after each failure."""
        self.failures += 1
        self.avoid_until = time.monotonic() + self.policy.delay(self.failures, fault.wait)

    async def is_up(self, path: str) -> bool:
        """Whether the server answers with success at this path."""
        async with self._request("GET", path) as response:
            return response.status < 400

    async def get(self, path: str) -> dict[str, Any] | None:
        """The JSON document at this path, or None if there is none."""
        async with self._request("GET", path) as response:
            return None if response.status in ABSENT else _document(response, await read_body(response))

    async def post(self, path: str, body: dict[str, Any], purpose: Purpose | None = None) -> dict[str, Any]:
        """The JSON reply to a JSON request."""
        async with self._request("POST", path, body, purpose) as response:
            return _document(response, await read_body(response))

    @asynccontextmanager
    async def events(
        self, path: str, body: dict[str, Any], parse: Callable[[dict[str, Any]], T], purpose: Purpose | None = None
    ) -> AsyncIterator[Reads[T]]:
        """The events of a streamed reply, parsed. Leaving the context early closes the connection, which cancels the
        request."""
        async with self._request("POST", path, body, purpose) as response:
            if response.status >= 400:
                _document(response, await read_body(response))
            with closing(watched(response, self.policy.first, self.policy.stall)) as silence:
                yield Reads(response.content, silence, parse)

    @asynccontextmanager
    async def _request(
        self, method: str, path: str, body: dict[str, Any] | None = None, purpose: Purpose | None = None
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        data = None if body is None else dumps(body)
        begun, outcome = False, "cancelled"
        try:
            response = await self._session().request(
                method, self.address + path, data=data, headers=purpose.headers if purpose else None
            )
            begun = True
            try:
                yield response
            finally:
                outcome = str(response.status) if response.content.at_eof() else outcome
                self._leave(response)
        except (aiohttp.ClientError, TimeoutError) as error:
            outcome = "error"
            raise _fault(error, self.policy, begun) from error
        finally:
            if self._observe:
                self._observe(self.address, purpose.kind if purpose else "other", outcome)

    def _leave(self, response: aiohttp.ClientResponse) -> None:
        """The rest of a reply is not needed: close the connection, or read on for a server that has to finish."""
        if response.content.at_eof() or not self.policy.drain:
            (response.release if response.content.at_eof() else response.close)()
            return
        task = asyncio.create_task(_read_to_end(response))
        self._draining.add(task)
        task.add_done_callback(self._draining.discard)

    def _session(self) -> aiohttp.ClientSession:
        if self._client is None:
            headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {self._key}"} if self._key else {})
            # a context of our own, because aiohttp's is made on import and misses a later SSL_CERT_FILE
            tls = ssl.create_default_context() if self.address.startswith("https:") else True
            self._client = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=self._connections, ssl=tls),
                headers=headers,
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=self.policy.connect, sock_read=self.policy.first),
                trust_env=urlsplit(self.address).hostname not in LOOPBACK,  # a proxy cannot reach a server on this machine
            )
        return self._client

    async def close(self) -> None:
        """Close the connections; the next request opens new ones."""
        client, self._client = self._client, None
        for task in self._draining:
            task.cancel()
        if client:
            await client.close()


class Reads(Generic[T]):
    """For each read from a streamed reply, an iterator over the events that it brought. It is a class, and no generator for
    each event, because every function that waits costs something for every token of every stream."""

    def __init__(self, content: aiohttp.StreamReader, silence: Silence, parse: Callable[[dict[str, Any]], T]) -> None:
        self._content, self._silence, self._parse, self._lines = content, silence, parse, Lines()

    def __aiter__(self) -> Reads[T]:
        return self

    async def __anext__(self) -> Iterator[T]:
        self._silence.since = time.monotonic()
        chunk = await self._content.readany()
        self._silence.since = NOT_WAITING
        if not chunk:
            raise StopAsyncIteration
        return self._events(self._lines.feed(chunk))

    def _events(self, lines: Sequence[bytes]) -> Iterator[T]:
        """Those before a faulty one are given before its error is raised."""
        for line in lines:
            if line and (event := read_event(line)) is not None:
                self._silence.begun = True
                yield self._parse(event)
        if self._lines.size > MAX_LINE_BYTES:
            raise BadReply(f"it sent an event of more than {MAX_LINE_BYTES} bytes")


async def read_body(response: aiohttp.ClientResponse) -> bytes:
    """The body of a reply, unless it is too long."""
    announced, parts, size = response.content_length or 0, [], 0
    while announced <= MAX_BODY_BYTES and (part := await response.content.readany()):
        parts.append(part)
        size += len(part)
        announced = max(announced, size)
    if announced > MAX_BODY_BYTES:
        raise BadReply(f"it sent a reply of more than {MAX_BODY_BYTES >> 20} MB")
    return b"".join(parts)


async def _read_to_end(response: aiohttp.ClientResponse) -> None:
    """Read a reply and drop it."""
    with suppress(aiohttp.ClientError), closing(response):
        while await response.content.readany():
            pass


def _fault(error: Exception, policy: RetryPolicy, begun: bool) -> Fault:
    """What went wrong with a connection, in words."""
    if isinstance(error, aiohttp.ConnectionTimeoutError):
        return Fault("it could not be reached in time", unreachable=True)
    if isinstance(error, TimeoutError):
        return Fault(f"it sent nothing for {policy.stall if begun else policy.first:g} seconds")
    if isinstance(error, aiohttp.ClientConnectorError):
        return Fault(f"it could not be reached ({type(error.os_error).__name__})", unreachable=True)
    if isinstance(error, aiohttp.ClientResponseError):
        return BadReply("it does not speak HTTP as expected")
    return Fault(f"the connection ended ({type(error).__name__})", unreachable=True, disconnected=not begun)


def read_event(line: bytes) -> dict[str, Any] | None:
    """The JSON object of one line of a stream; None for comments, empty lines and the end mark."""
    line = line.strip()
    if line.startswith(b"error:"):
        raise refusal(_parsed(line[6:]), 500)
    if not line.startswith(b"data:") or line.endswith(b"[DONE]"):
        return None
    event = _parsed(line[5:])
    if "error" in event:
        raise refusal(event, _status_of(event))
    return event


def _document(response: aiohttp.ClientResponse, content: bytes) -> dict[str, Any]:
    if response.status >= 400:
        raise refusal(_error_in(content, response.status), response.status, retry_after(response.headers))
    data = _parsed(content)
    if "error" in data:
        raise refusal(data, _status_of(data))
    return data


def _parsed(data: bytes) -> dict[str, Any]:
    try:
        value = loads(data)
    except ValueError as error:
        raise BadReply("it sent something that is not JSON") from error
    if not isinstance(value, dict):
        raise BadReply("it sent JSON that is not an object")
    return value


def _error_in(content: bytes, status: int) -> dict[str, Any]:
    """The error in a reply, as JSON or as plain text."""
    try:
        return _parsed(content)
    except BadReply:
        return {"error": content.decode("utf-8", errors="replace")[:200] or str(status)}


def _status_of(event: dict[str, Any]) -> int:
    error = event.get("error")
    code = error.get("code") if isinstance(error, dict) else None
    return code if isinstance(code, int) else 500


def refusal(data: dict[str, Any], status: int, wait: float | None = None) -> Fault | CgrError:
    """The exception for an error that a server reported: a `Fault` if it may pass."""
    detail = data.get("error", data)
    fields = detail if isinstance(detail, dict) else {"message": detail}
    message = str(fields.get("message", detail))[:MAX_MESSAGE].rstrip(".")
    if status in WRONG_KEY:
        return WrongKey(f"The server refused the API key: {message}.", "Set CGR_API_KEY to a key that it accepts.")
    if CONTEXT_ERRORS & {str(fields.get(name)) for name in ("type", "code")}:  # a server may send anything there
        return DoesNotFit(f"The server ran out of context: {message}.", "Lower --budget, or shorten the question.")
    if status in TEMPORARY:
        return Fault(f"it answered {status}: {message}", wait)
    kind = Refused if status in WRONG_REQUEST else EngineError
    return kind(f"The server refused: {message}.", "Check the model and the options.")
