"""Thinks on after an early stop, behind the reply, to the end that the same trace would have had without it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from cgr.drive.answer import think_plainly
from cgr.drive.driver import Driver
from cgr.engines.base import Engine, Session
from cgr.reason import Ask
from cgr.records import Decision, Probe
from cgr.rules.same_answer import agrees
from cgr.server.generation import Opened

Reopen = Callable[[], Awaitable[Session]]
Ready = Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class TraceEnd:
    """The end of a trace: all of its thinking, and the answer there."""

    ids: tuple[int, ...]
    final: Probe

    def differs(self, decision: Decision) -> bool:
        """Whether the answer of an early stop differs from the one at the end: the loss of the risk `disagreement`."""
        return not agrees(decision.answer, decision.closed, self.final)


async def end_of_trace(engine: Engine, opened: Opened, ids: tuple[int, ...], calm: Ready) -> TraceEnd:
    """The end of the thinking that begins with these tokens, by itself or at the budget. `calm` is awaited before each
    stretch of it."""
    session = await continued(opened.reopen, ids, engine.info.chunk)
    try:
        driver = Driver(engine, session, opened.driver.spec, full=True, ready=calm)
        driver.ids = list(ids)
        end = await think_plainly(driver, opened.budget)
        closed = end.stop_cause == "end_of_thinking"
        reply = await driver.serve(Ask(len(driver.ids), final=end.stop_cause, close_thinking=closed))
    finally:
        await session.close()
    assert isinstance(reply, Probe)
    return TraceEnd(tuple(driver.ids), reply)


async def continued(reopen: Reopen, ids: tuple[int, ...], chunk: int | None) -> Session:
    """A session that has thought these tokens and goes on as the one before would have.

    `chunk`: where thinking is sampled in chunks, each from one seed, the last one that was begun is sampled again: its rest
    belongs to the same trace. It can come out otherwise only if some of these tokens were not sampled.
    """
    again = len(ids) % chunk if chunk else 0
    session = await reopen()
    try:
        if len(ids) > again:
            await session.append(ids[: len(ids) - again])
        if not again or (await session.think(again)).ids == ids[len(ids) - again :]:
            return session
    except BaseException:
        await session.close()
        raise
    await session.close()
    session = await reopen()
    await session.append(ids)
    return session
