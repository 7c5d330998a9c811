"""Several servers with the same model: the least loaded is asked first, one that fails is set aside and tried again later.

A session stays with its server, whose cache holds its trace, until that server fails.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from cgr.engines.completions.connection import Fault, Link, Patience, given_up
from cgr.engines.completions.dialect import BrokenOff

T = TypeVar("T")


class Pool:
    def __init__(self, links: Sequence[Link], patience: Patience) -> None:
        self.links, self.patience = tuple(links), patience

    def least_loaded(self) -> Link:
        """Of those that are well; if none is, the one that comes back first."""
        well = [link for link in self.links if not link.aside]
        return min(well, key=lambda link: link.load) if well else min(self.links, key=lambda link: link.aside_until)

    async def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        return await Attempts(Home(self)).until_done(lambda link: link.post(path, body))

    async def close(self) -> None:
        for link in self.links:
            await link.close()


class Home:
    """The server that somebody asks: changed for another when it fails. While `settled`, it counts in the server's load."""

    def __init__(self, pool: Pool, *, settled: bool = False) -> None:
        self.pool, self.settled = pool, settled
        self.link = pool.least_loaded()
        self.link.load += settled

    def move(self, link: Link) -> None:
        self.link.load -= self.settled
        self.link = link
        self.link.load += self.settled

    def leave(self) -> None:
        self.link.load -= self.settled
        self.settled = False


class Attempts:
    """Doing one thing, several times if need be: failures are counted from one success to the next."""

    def __init__(self, home: Home) -> None:
        self.home, self.failures = home, 0

    def progress(self) -> None:
        """Something came: what failed before no longer counts."""
        self.failures = 0
        self.home.link.well()

    async def failed(self, link: Link, fault: Fault | BrokenOff) -> None:
        """Go elsewhere, or wait; after too many failures in a row, an error."""
        pool = self.home.pool
        known = fault if isinstance(fault, Fault) else Fault(str(fault))
        self.failures += 1
        if self.failures >= pool.patience.tries:
            raise given_up(link.address, known.what, self.failures) from fault
        link.ill(known)
        if self.home.link is link and not (other := pool.least_loaded()).aside:
            self.home.move(other)
        if self.home.link.aside:
            await asyncio.sleep(pool.patience.delay(self.failures - 1, known.wait))

    async def until_done(self, attempt: Callable[[Link], Awaitable[T]]) -> T:
        """What an attempt gives, tried again as long as there is patience."""
        while True:
            link = self.home.link
            try:
                result = await attempt(link)
            except (Fault, BrokenOff) as fault:
                await self.failed(link, fault)
            else:
                self.progress()
                return result
