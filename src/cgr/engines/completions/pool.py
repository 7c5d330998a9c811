"""Several servers of one model, and the one place that decides about retries.

A session stays with its server, whose cache holds its trace, until that server fails.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from cgr.engines.completions.http import Fault, RetryPolicy, Server
from cgr.errors import EngineError

T = TypeVar("T")


class Pool:
    """Servers with the same model: the least loaded is used first, one that fails is avoided for a while."""

    def __init__(self, servers: Sequence[Server], policy: RetryPolicy) -> None:
        self.servers, self.policy = tuple(servers), policy

    def least_loaded(self) -> Server:
        """Of the servers that did not fail lately; if all did, the one that is tried again first."""
        healthy = [server for server in self.servers if not server.avoided]
        return min(healthy, key=lambda one: one.load) if healthy else min(self.servers, key=lambda one: one.avoid_until)

    async def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """The reply of any server, with retries."""
        return await Attempts(Replica(self)).until_done(lambda server: server.post(path, body))

    async def close(self) -> None:
        """Close the connections to all servers."""
        for server in self.servers:
            await server.close()


class Replica:
    """The server that a session uses; another takes its place when it fails. `counted`: it counts in the server's load."""

    def __init__(self, pool: Pool, *, counted: bool = False) -> None:
        self.pool, self.counted = pool, counted
        self.server = pool.least_loaded()
        self.server.load += counted

    def move(self, server: Server) -> None:
        """Use another server from now on."""
        self.server.load -= self.counted
        self.server = server
        self.server.load += self.counted

    def leave(self) -> None:
        """The session is closed: it no longer counts."""
        self.server.load -= self.counted
        self.counted = False


class Attempts:
    """The retries of one piece of work; failures are counted from one success to the next."""

    def __init__(self, replica: Replica) -> None:
        self.replica, self.failures, self._disconnections = replica, 0, 0

    def progress(self) -> None:
        """Something was received: earlier failures no longer count."""
        self.failures = self._disconnections = 0
        self.replica.server.succeeded()

    async def failed(self, server: Server, fault: Fault) -> None:
        """Move to another server, or wait; after too many failures in a row, raise an error."""
        pool = self.replica.pool
        if fault.disconnected and self._disconnections < pool.policy.at_once:
            self._disconnections += 1
            return
        self._disconnections = 0
        self.failures += 1
        if self.failures >= pool.policy.tries:
            raise EngineError(
                f"The server at {server.address} failed {self.failures} times in a row: {fault.what}.",
                "Check the server. No failed request was counted as an answer, and the same command can be run again.",
            ) from fault
        server.failed(fault)
        if self.replica.server is server and not (other := pool.least_loaded()).avoided:
            self.replica.move(other)
        if self.replica.server.avoided:
            await asyncio.sleep(pool.policy.delay(self.failures - 1, fault.wait))

    async def until_done(self, attempt: Callable[[Server], Awaitable[T]]) -> T:
        """The result of the first attempt that succeeds."""
        while True:
            server = self.replica.server
            try:
                result = await attempt(server)
            except Fault as fault:
                await self.failed(server, fault)
            else:
                self.progress()
                return result
