"""The ASGI application: routes, keys, limits, errors in OpenAI's shape, one log line for each request."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import orjson
from pydantic import BaseModel
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import Route, Router

from cgr.server.chat import ChatStream, WholeChat
from cgr.server.conversations import ConversationRequest, from_messages, from_responses
from cgr.server.exchange import ClientLeft, Exchange, Receive, Scope, Send
from cgr.server.faults import MESSAGES_PATH, ApiError, api_error, from_validation
from cgr.server.gateway import SHUTTING_DOWN, Gateway, MakeStream, MakeWhole
from cgr.server.generation import Generation
from cgr.server.keys import from_other_page, may_enter
from cgr.server.logs import log
from cgr.server.messages import MessageStream, WholeMessage
from cgr.server.page import FILES_AT, PAGE_HEADERS, page, page_file
from cgr.server.protocol import ChatBody, CompletionBody, MessagesBody, ResponsesBody, SamplingFields
from cgr.server.reading import PassOn
from cgr.server.responses import ResponseBuilder, ResponseStream
from cgr.server.schema import schema
from cgr.server.text_completions import CompletionStream, WholeCompletion

T = TypeVar("T", bound=BaseModel)
Handler = Callable[[Exchange], Awaitable[None]]
PAGE_FILE = FILES_AT + "{name}"
OPEN_PATHS = frozenset({"/", PAGE_FILE, "/health", "/ready", "/openapi.json"})  # need no key
ALIASES = ("plain", "cgr-0.95", "cgr-0.97", "cgr-0.99")
TEXT = {"content-type": "text/plain; version=0.0.4; charset=utf-8"}


def create_app(gateway: Gateway) -> Callable[[Scope, Receive, Send], Awaitable[None]]:
    """The application on a gateway that is connected."""
    endpoints = Endpoints(gateway)
    routes = [
        Route(path, _Endpoint(gateway, method, path, handler))
        for method, path, handler in (
            ("POST", "/v1/chat/completions", endpoints.chat),
            ("POST", "/v1/completions", endpoints.completions),
            ("POST", "/v1/responses", endpoints.responses),
            ("POST", MESSAGES_PATH, endpoints.messages),
            ("GET", "/v1/models", endpoints.models),
            ("GET", "/health", endpoints.health),
            ("GET", "/ready", endpoints.ready),
            ("GET", "/metrics", endpoints.metrics),
            ("GET", "/openapi.json", endpoints.openapi),
            ("GET", "/", endpoints.page),
            ("GET", PAGE_FILE, endpoints.page_file),
        )
    ]
    allowed = gateway.config.cors
    missing = _Endpoint(gateway, "", "other", _no_such_path)
    # a router only: Starlette's application would put two more calls before each piece of a stream
    app = Router(routes, redirect_slashes=False, default=missing)
    return CORSMiddleware(app, allow_origins=allowed, allow_methods=["*"], allow_headers=["*"]) if allowed else app


async def _no_such_path(exchange: Exchange) -> None:
    raise ApiError(404, f"There is nothing at {exchange.scope['path'][:200]!r}.", code="not_found")


@dataclass(frozen=True, slots=True)
class _Endpoint:
    """One route as an ASGI application: what every request goes through."""

    gateway: Gateway
    method: str
    path: str
    handler: Handler

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        exchange = Exchange(scope, receive, send)
        with self.gateway.counted(exchange):
            try:
                self._check(exchange)
                await self.handler(exchange)
            except (ClientLeft, asyncio.CancelledError) as error:
                self._left(exchange)
                if isinstance(error, asyncio.CancelledError):
                    raise
            except Exception as error:  # noqa: BLE001 - nothing of the inside may reach a client
                await self._failed(exchange, error)
        self._done(exchange)

    def _check(self, exchange: Exchange) -> None:
        keys, method = self.gateway.config.keys, exchange.scope["method"].replace("HEAD", "GET")
        if self.method and method != self.method:
            raise ApiError(405, f"{self.path} is for {self.method} requests.", code="method_not_allowed")
        if self.gateway.draining and self.path not in OPEN_PATHS | {"/metrics"}:
            raise SHUTTING_DOWN
        if keys and self.path not in OPEN_PATHS and not may_enter(exchange.headers, keys):
            raise ApiError(401, "The API key is missing or wrong.", code="invalid_api_key")
        if method == "POST" and from_other_page(exchange.headers, self.gateway.config.cors):
            raise ApiError(403, "Pages of other origins may not use this server.", code="forbidden_origin")

    async def _failed(self, exchange: Exchange, error: Exception) -> None:
        sent = api_error(error, gateway=self.gateway.config.gateway)
        if sent.status >= 500 and sent is not SHUTTING_DOWN:
            self.gateway.report(exchange, error)
        exchange.fields.setdefault("error", sent.message)
        if not exchange.started:
            await exchange.fail(sent)

    def _left(self, exchange: Exchange) -> None:
        self.gateway.metrics.disconnects.inc()
        exchange.fields["left"] = exchange.answer.phase if exchange.answer else "request"
        if exchange.answer:
            self.gateway.metrics.requests.labels(self.gateway.engine.info.name, "client_stop").inc()

    def _done(self, exchange: Exchange) -> None:
        seconds = time.perf_counter() - exchange.received
        code = str(exchange.status or 499)
        self.gateway.metrics.http.labels(self.path, code).inc()
        if exchange.scope["method"] == "POST":
            self.gateway.metrics.duration.observe(seconds)
        level = logging.DEBUG if self.path in OPEN_PATHS | {"/metrics"} else logging.INFO
        log(
            "request",
            level,
            id=exchange.id,
            endpoint=self.path,
            code=int(code),
            ms=round(seconds * 1000, 1),
            **exchange.fields,
        )


class Endpoints:
    """What each path does."""

    def __init__(self, gateway: Gateway) -> None:
        self.gateway, self.config = gateway, gateway.config

    async def chat(self, exchange: Exchange) -> None:
        """POST /v1/chat/completions"""
        raw, body = await self.read(exchange, ChatBody)
        asked = self.gateway.reader.chat(body, exchange.headers, exchange.id)
        await self.respond(exchange, raw, asked, ChatStream, WholeChat)

    async def completions(self, exchange: Exchange) -> None:
        """POST /v1/completions"""
        raw, body = await self.read(exchange, CompletionBody)
        asked = self.gateway.reader.completion(body, exchange.headers, exchange.id)
        await self.respond(exchange, raw, asked, CompletionStream, WholeCompletion)

    async def responses(self, exchange: Exchange) -> None:
        """POST /v1/responses"""
        raw, body = await self.read(exchange, ResponsesBody)
        asked = await self._converse(exchange, body, from_responses(body))
        await self.respond(exchange, raw, asked, ResponseStream, ResponseBuilder)

    async def messages(self, exchange: Exchange) -> None:
        """POST /v1/messages"""
        raw, body = await self.read(exchange, MessagesBody)
        asked = await self._converse(exchange, body, from_messages(body))
        await self.respond(exchange, raw, asked, MessageStream, WholeMessage)

    async def _converse(
        self, exchange: Exchange, body: SamplingFields, request: ConversationRequest
    ) -> Generation | PassOn:
        """Not every upstream has these endpoints; what cannot be passed on is answered here or refused."""
        reader, path, proxy = self.gateway.reader, exchange.scope["path"], self.gateway.proxy
        asked = reader.converse(body, request, exchange.headers, exchange.id)
        if isinstance(asked, PassOn) and proxy and not await proxy.has(path):
            return reader.converse(body, request, exchange.headers, exchange.id, missing=path)
        return asked

    async def read(self, exchange: Exchange, kind: type[T]) -> tuple[bytes, T]:
        """The body as it came, and as it is understood."""
        raw = await exchange.body(self.config.max_body)
        try:
            data = orjson.loads(raw)
        except orjson.JSONDecodeError as error:
            raise ApiError(400, f"The body is not JSON: {error.msg}.", code="invalid_json") from error
        if not isinstance(data, dict):
            raise ApiError(400, "The body must be a JSON object.", code="invalid_json")
        try:
            return raw, kind.model_validate(data)
        except ValueError as error:
            raise from_validation(error) from error  # type: ignore[arg-type]

    async def respond(
        self, exchange: Exchange, raw: bytes, asked: Generation | PassOn, stream: MakeStream, whole: MakeWhole
    ) -> None:
        """Answer the request here, or pass it on to the upstream; either ends when the client leaves."""
        if isinstance(asked, PassOn):
            await exchange.while_connected(self._pass_on(exchange, raw, asked))
        else:
            await exchange.while_connected(self.gateway.answer(exchange, asked, stream, whole))

    async def _pass_on(self, exchange: Exchange, raw: bytes, passed: PassOn) -> None:
        proxy = self.gateway.proxy
        assert proxy is not None
        exchange.fields |= {"mode": "passed_on", "why": passed.why}
        async with self.gateway.pass_gate.place() as waited:
            exchange.overhead = time.perf_counter() - exchange.received - waited
            with self.gateway.copying(exchange.scope["path"], passed.recorded) as copy:
                await proxy.pass_on(exchange, raw, passed.why, passed.model, copy, quiet=self.config.quiet)
        self.gateway.metrics.requests.labels(self.gateway.engine.info.name, "not_probed").inc()

    async def models(self, exchange: Exchange) -> None:
        """GET /v1/models"""
        name, proxy = self.gateway.engine.info.name, self.gateway.proxy
        listed = await proxy.models() if proxy else {"object": "list", "data": [{"id": name, **_own()}]}
        data = listed.get("data") or []
        aliases = [{"id": f"{name}:{alias}", **_own(), "parent": name} for alias in ALIASES]
        await exchange.reply_json(listed | {"data": [*data, *aliases]})

    async def health(self, exchange: Exchange) -> None:
        """GET /health: this process works; and the state of the promise, if there is one."""
        await exchange.reply_json({"status": "ok", **self.gateway.promise.health()})

    async def ready(self, exchange: Exchange) -> None:
        """GET /ready: requests can be answered."""
        proxy = self.gateway.proxy
        ready = not self.gateway.draining and (proxy is None or await proxy.is_up())
        why = "ready" if ready else "shutting down" if self.gateway.draining else "the upstream cannot be reached"
        await exchange.reply_json({"status": why}, 200 if ready else 503)

    async def metrics(self, exchange: Exchange) -> None:
        """GET /metrics"""
        await exchange.reply(200, self.gateway.metrics.text(), TEXT)

    async def openapi(self, exchange: Exchange) -> None:
        """GET /openapi.json"""
        await exchange.reply_json(schema())

    async def page(self, exchange: Exchange) -> None:
        """GET /"""
        await exchange.reply(200, page(self.config), PAGE_HEADERS)

    async def page_file(self, exchange: Exchange) -> None:
        """GET /page/NAME: a style sheet or a script of the page"""
        found = page_file(exchange.scope["path_params"]["name"])
        if found is None:
            await _no_such_path(exchange)
        else:
            await exchange.reply(200, *found)


def _own() -> dict[str, Any]:
    return {"object": "model", "created": 0, "owned_by": "cgr"}
