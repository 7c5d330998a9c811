"""Audits: of a share of the requests that the promise covers, the loss is found out behind the reply.

A request is chosen when it begins, before anything is known about it. If it is not stopped early, it loses nothing, at no
cost. If it is, its thinking goes on behind the reply. So the losses of the chosen requests are draws from those of all
covered requests, which is what the promise is about.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from cgr.errors import CgrError
from cgr.server.audit.continued import end_of_trace
from cgr.server.audit.options import AuditOptions
from cgr.server.audit.promise import Coverage, Promise
from cgr.server.audit.state import AUDIT_SECONDS, AuditState, StateFile
from cgr.server.faults import sentence
from cgr.server.logs import log

if TYPE_CHECKING:
    from prometheus_client import Counter

    from cgr.engines.base import Engine
    from cgr.server.generation import Answer
    from cgr.server.result import Result

Chosen = asyncio.Task[int]
Change = Callable[[AuditState], AuditState]


class Auditor:
    """The audits of one process. `calm` is awaited before each stretch of thinking, so that clients come first. `tokens`
    counts what is thought for audits."""

    def __init__(
        self, promise: Promise, options: AuditOptions, calm: Callable[[], Awaitable[None]], tokens: Counter
    ) -> None:
        assert promise.state is not None
        self.promise, self.options, self.calm, self.tokens = promise, options, calm, tokens
        self.state: StateFile = promise.state
        self._random = random.SystemRandom()  # not from anything that a client sends
        self._taken = 0
        self._work: set[asyncio.Task[None]] = set()
        self._ending = False

    def start(self) -> None:
        """Read or create the state, and do what it demands."""
        if told := self.state.prepare():
            log(told, logging.WARNING)
        self._change(lambda state: state)

    def choose(self, coverage: Coverage) -> Chosen | None:
        """Whether this request is audited; its ticket, if so. It is dropped if all places for audits are taken: that is
        decided here, before anything is known about the request."""
        if not coverage.watched or self._ending or self._random.random() >= self.options.share:
            return None
        if self._taken >= self.options.sessions:
            self._begin(self._changed(lambda state: state.dropped_one()))
            return None
        self._taken += 1
        return asyncio.create_task(asyncio.to_thread(self._take_ticket))

    def _take_ticket(self) -> int:
        return self._change(lambda state: state.chosen(os.getpid())).next_ticket - 1

    def after(self, engine: Engine, answer: Answer) -> None:
        """The reply to a chosen request is out, or its client left."""
        if answer.chosen is not None:
            self._begin(self._follow(engine, answer, answer.chosen))

    def _begin(self, work: Awaitable[None]) -> None:
        task: asyncio.Task[None] = asyncio.ensure_future(work)
        self._work.add(task)
        task.add_done_callback(self._work.discard)

    async def _follow(self, engine: Engine, answer: Answer, chosen: Chosen) -> None:
        try:
            number = await chosen
            result = answer.result
            if result is None:
                await self._changed(lambda state: state.withdrawn(number))
                return
            try:
                loss, thought = await self._loss(engine, answer, result)
            except Exception as error:  # noqa: BLE001 - the reply is out: nothing about an audit may reach anybody
                self._report(answer, error)
                await self._changed(lambda state: state.failed_one(number))
                return
            log("audit", id=answer.request.id, stop_cause=result.stop_cause, loss=int(loss), thinking_tokens=thought)
            await self._changed(lambda state: state.settled(number, loss))
        except CgrError as error:
            log("the state of the audits cannot be kept", logging.ERROR, error=sentence(error))
        finally:
            self._taken -= 1

    @staticmethod
    def _report(answer: Answer, error: Exception) -> None:
        known = isinstance(error, (CgrError, TimeoutError))
        why = sentence(error) if isinstance(error, CgrError) else "it took too long" if known else type(error).__name__
        log("an audit failed", logging.WARNING, exception=None if known else error, id=answer.request.id, error=why)

    async def _loss(self, engine: Engine, answer: Answer, result: Result) -> tuple[bool, int]:
        """Whether an answer changed, and how long the whole thinking is."""
        decision = result.outcome.decision
        if decision.stop_cause != "certainty":
            return decision.stop_cause == "gave_up", decision.thinking_tokens  # without an answer if it gave up
        assert answer.opened is not None
        ids = result.outcome.ids[: decision.thinking_tokens]
        async with asyncio.timeout(AUDIT_SECONDS):
            end = await end_of_trace(engine, answer.opened, ids, self.calm)
        self.tokens.inc(len(end.ids) - len(ids))
        return end.differs(decision), len(end.ids)

    async def _changed(self, change: Change) -> None:
        await asyncio.to_thread(self._change, change)

    def _change(self, change: Change) -> AuditState:
        """Change the state; then count what can be counted, and obey `--on-broken`."""
        promise = self.promise
        epsilon, delta = promise.calibration.epsilon, promise.options.delta

        def whole(state: AuditState) -> AuditState:
            return self._obeying(change(state).counted(epsilon, delta))

        before, after = self.state.change(whole)
        if after.former_audits > before.former_audits or after.alarmed > before.alarmed:
            self._tell(after)
        return after

    def _obeying(self, state: AuditState) -> AuditState:
        if self.options.on_broken != "tighten" or not state.alarmed or state.parameter is None:
            return state
        return state.at(self.promise.stricter(state.parameter))

    def _tell(self, state: AuditState) -> None:
        promise = self.promise
        done = {"warn": "early stops go on", "off": "nothing is stopped any more"}.get(
            self.options.on_broken,
            "nothing is stopped any more" if state.parameter is None else f"{promise.main} is now {state.parameter:g}",
        )
        log(
            f"the promise is broken: the risk is above {promise.calibration.epsilon:g}; {done}",
            logging.WARNING,
            calibration=promise.calibration.digest[:12],
            audits=state.former_audits + state.audits,
            losses=state.former_losses + state.losses,
        )

    async def abandon(self) -> None:
        """End all audits; they count for nothing."""
        self._ending = True
        for task in self._work:
            task.cancel()
        await asyncio.gather(*self._work, return_exceptions=True)
