"""What happens while a question is answered: events, and a stream of them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from cgr.errors import CgrError
from cgr.records import Decision, Probe, Token

T = TypeVar("T")
MAX_WAITING = 256  # events that nobody has read yet; the work pauses until they are read


@dataclass(frozen=True, slots=True)
class Thinking:
    """Some text was thought, or (`forced`) written in place of the end tag."""

    text: str
    forced: bool = False


@dataclass(frozen=True, slots=True)
class Probed:
    """A probe was made."""

    probe: Probe


@dataclass(frozen=True, slots=True)
class Decided:
    """The question is settled."""

    decision: Decision


@dataclass(frozen=True, slots=True)
class Answering:
    """Some text of the answer was written, after the question was settled. `logprobs`: its tokens, if requested."""

    text: str
    tokens: int = 0
    logprobs: tuple[Token, ...] = ()


Event = Thinking | Probed | Decided | Answering
OnEvent = Callable[[Event], None]


class EventStream(Generic[T]):
    """The events of a piece of work, as an async iterator that runs the work in a task.

    `work` is given this stream: it calls `put` for each event, and awaits `room` now and then so that a slow reader slows
    it down. Once the iteration has ended, `result` is what the work returned. If the iteration is left early (close it
    with `contextlib.aclosing`, or cancel the task that iterates), the work is cancelled.

    `direct`: a function that is called with the events that are there while the reader waits, before it is woken, and that
    may take some off the beginning. A call costs a fraction of what waking a task costs.
    """

    def __init__(
        self,
        work: Callable[[EventStream[T]], Coroutine[Any, Any, T]],
        direct: Callable[[deque[Event]], None] | None = None,
    ) -> None:
        self._work, self._direct, self._offering = work, direct, False
        self._waiting: deque[Event] = deque()
        self._read = asyncio.Event()
        self._reader: asyncio.Future[None] | None = None  # set while the reader waits; an asyncio.Event costs twice as much
        self._task: asyncio.Task[T] | None = None

    def put(self, event: Event) -> None:
        """Add an event."""
        self._waiting.append(event)
        if not self._reader:
            return
        if self._direct is None:
            self._wake()
        elif not self._offering:  # later, so that one call gets all events of one read
            self._offering = True
            self._reader.get_loop().call_soon(self._offer, self._direct)

    def _offer(self, direct: Callable[[deque[Event]], None]) -> None:
        self._offering = False
        if self._reader and self._waiting:
            direct(self._waiting)
            self._read.set()
            if self._waiting:
                self._wake()

    def _wake(self) -> None:
        if self._reader and not self._reader.done():
            self._reader.set_result(None)
        self._reader = None

    async def room(self) -> None:
        """Wait until the reader has read enough."""
        while len(self._waiting) >= MAX_WAITING:
            self._read.clear()
            await self._read.wait()

    @property
    def waiting(self) -> int:
        """Events that were put and not read yet."""
        return len(self._waiting)

    @property
    def result(self) -> T:
        """What the work returned."""
        if self._task is None or not self._task.done():
            raise CgrError("The events are not over yet.", "Read them all first.")
        return self._task.result()

    async def __aiter__(self) -> AsyncGenerator[Event, None]:
        async with aclosing(self.batches(1)) as batches:
            async for events in batches:
                yield events[0]

    async def batches(self, most: int = MAX_WAITING) -> AsyncGenerator[list[Event], None]:
        """The events that are there, at most this many together: for readers that have much to do for each step."""
        self._task = task = asyncio.create_task(self._work(self))
        task.add_done_callback(lambda _: self._wake())
        new_future = asyncio.get_running_loop().create_future
        try:
            while self._waiting or not task.done():
                if self._waiting:
                    events = [self._waiting.popleft() for _ in range(min(most, len(self._waiting)))]
                    self._read.set()
                    yield events
                elif not task.done():
                    self._reader = new_future()
                    await self._reader
            task.result()
        finally:
            self._wake()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
