"""A client for the start, before there is an event loop: it asks one thing at a time, and waits for a server that loads."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import httpx

from cgr.engines.completions.connection import Fault, Patience, read_line, read_reply
from cgr.engines.completions.dialect import BrokenOff, Dialect, Wanted, body, read
from cgr.engines.completions.http1 import Head
from cgr.engines.completions.wire import Piece
from cgr.errors import EngineError, ModelNotFound, UsageError

T = TypeVar("T")


class Asker:
    """A client for the start, without an event loop. It waits for a server that is still loading."""

    def __init__(self, address: str, key: str | None, patience: Patience) -> None:
        self.address, self.patience = address, patience
        self.client = httpx.Client(
            base_url=address,
            headers={"Authorization": f"Bearer {key}"} if key else {},
            timeout=httpx.Timeout(patience.first, connect=patience.connect),
            trust_env=False,
        )

    def get(self, path: str) -> dict[str, Any] | None:
        """What is there; None where there is no such thing."""
        return self._asked(lambda: self._absent_or_read(self.client.get(path)))

    def post(self, path: str, data: dict[str, Any]) -> dict[str, Any]:
        return self._asked(lambda: read_response(self.client.post(path, json=data)))

    @staticmethod
    def _absent_or_read(response: httpx.Response) -> dict[str, Any] | None:
        return None if response.status_code in (404, 405, 501) else read_response(response)

    def _asked(self, ask: Callable[[], T]) -> T:
        """What may pass is tried again, but for a server that is not there at all."""
        attempt = 0
        while True:
            try:
                return ask()
            except httpx.ConnectError as error:
                raise unreachable(self.address, lost(error).what) from error
            except httpx.HTTPError as error:
                fault = lost(error)
            except Fault as passing:
                fault = passing
            except BrokenOff as strange:
                raise UsageError(f"{self.address} is no completions server: {strange}.", "Check --base-url.") from strange
            attempt += 1
            if attempt >= self.patience.tries:
                raise self._given_up(fault)
            time.sleep(self.patience.delay(attempt - 1, fault.wait))

    def _given_up(self, fault: Fault) -> ModelNotFound | EngineError:
        """A server that is there and fails is not one that is not there."""
        if fault.away:
            return unreachable(self.address, fault.what)
        return EngineError(f"The server at {self.address} is not well: {fault.what}.", "See to it, and try again.")

    def complete(self, dialect: Dialect, model: str, wanted: Wanted) -> Piece:
        return read_whole(dialect, self.post(dialect.path, body(dialect, model, wanted)))

    def streamed(self, dialect: Dialect, model: str, wanted: Wanted) -> list[Piece]:
        sent = body(dialect, model, replace(wanted, stream=True))

        def listen() -> list[Piece]:
            with self.client.stream("POST", dialect.path, json=sent) as response:
                if response.is_error:
                    response.read()
                    read_response(response)
                events = (read_line(line.encode()) for line in response.iter_lines())
                return [read_whole(dialect, event) for event in events if event is not None]

        return self._asked(listen)

    def close(self) -> None:
        self.client.close()


def read_response(response: httpx.Response) -> dict[str, Any]:
    return read_reply(Head(response.status_code, response.headers), response.content)


def lost(error: httpx.HTTPError) -> Fault:
    away = isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.RemoteProtocolError | httpx.ReadError)
    words: dict[type, str] = {
        httpx.ConnectTimeout: "it could not be reached in time",
        httpx.ReadTimeout: "it said nothing for too long",
    }
    return Fault(words.get(type(error), f"the connection failed ({type(error).__name__})"), away=away)


def read_whole(dialect: Dialect, data: dict[str, Any]) -> Piece:
    try:
        return read(dialect, data)
    except BrokenOff as fault:
        raise EngineError(f"The server's completions make no sense: {fault}.", "Is it a completions server?") from fault


def unreachable(address: str, why: str) -> ModelNotFound:
    return ModelNotFound(f"There is no server at {address}: {why}.", "Start it, or check --base-url and CGR_BASE_URL.")
