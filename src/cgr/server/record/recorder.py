"""Probes the thinking of finished replies, behind them, and records it.

The client's reply is a plain one and does not wait for any of this. Finished replies wait in a backlog of limited size; a
few of them are probed at once, on sessions of their own.
"""

from __future__ import annotations

import asyncio
import logging
import time
from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Literal

from cgr.drive.driver import Driver, answer_room
from cgr.engines.base import Engine, Sampling
from cgr.errors import CgrError, UsageError
from cgr.lab.record.prober import AskAt
from cgr.lab.record.retrace import RetraceEngine, interval_cuts
from cgr.lab.store.config import Asking, ProbeSet, RunConfig
from cgr.lab.store.needed_probes import requests_of, satisfies
from cgr.lab.store.recorded import SHADOW, SHADOW_TEXT, RecordedTrace
from cgr.lab.store.schema import StoreError
from cgr.reason import Abstention
from cgr.records import Ended, Message, Probe, messages_of
from cgr.server.config import ServeConfig
from cgr.server.exchange import ClientLeft
from cgr.server.generation import Answer
from cgr.server.logs import log
from cgr.server.metrics import Metrics
from cgr.server.record.answers import without_text
from cgr.server.record.key import RecordingKey, read_key
from cgr.server.record.replies import ReplyCopy, read_reply
from cgr.server.record.writer import RunWriter

OWN_SESSIONS = 1  # of the server's own model, beside those for requests
UPSTREAM_SESSIONS = 4
BACKLOG_TOKENS = 4_000_000  # about 16 MB
LEAST_TOKENS = 1024  # what a reply counts in the backlog at least
Dropped = Literal[
    "limit", "busy", "client_left", "failed", "no_thinking", "cut_short", "probe_failed", "write_failed", "shutdown"
]


@dataclass(frozen=True, slots=True)
class FinishedReply:
    """A reply that nothing stopped. `thinking`: its token ids, or its text where only that is known. `ended`: the model
    ended its thinking by itself."""

    messages: tuple[Message, ...]
    thinking: Sequence[int] | str
    ended: bool

    @property
    def size(self) -> int:
        """About how many tokens it holds."""
        return max(len(self.thinking), LEAST_TOKENS)


class CutShort(Exception):
    """The thinking ended at a limit of the client, below the budget of the run: nobody knows how it would go on."""


class Recorder:
    """The recording of one worker."""

    def __init__(self, config: ServeConfig, engine: Engine, metrics: Metrics) -> None:
        assert config.shadow is not None
        self.config, self.engine, self.metrics, self.shadow = config, engine, metrics, config.shadow
        self.key: RecordingKey = read_key(self.shadow.folder)
        self.writer: RunWriter
        self._backlog: asyncio.Queue[FinishedReply] = asyncio.Queue()
        self._waiting = 0  # tokens in the backlog
        self._unfinished = 0  # replies in the backlog, or being probed
        self._tasks: list[asyncio.Task[None]] = []
        self._logged: set[str] = set()

    async def open(self) -> None:
        """Open the run and begin to work."""
        run, probe_set = recorded_as(self.config, self.engine)
        self.writer = RunWriter(self.shadow.run_folder, run, probe_set)
        await self.writer.open()
        count = UPSTREAM_SESSIONS if self.config.gateway else OWN_SESSIONS
        self._tasks = [asyncio.create_task(self._work()) for _ in range(count)]

    async def close(self, seconds: float) -> None:
        """Work on for at most this time, then write what is finished and close the run."""
        with suppress(TimeoutError):
            async with asyncio.timeout(max(seconds, 0.0)):
                await self._backlog.join()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for _ in range(self._unfinished):
            self.drop("shutdown", f"{self._unfinished} replies were not yet probed and are not recorded")
        await self.writer.close()

    # Replies

    @contextmanager
    def answered(self, answer: Answer) -> Iterator[None]:
        """Around a reply of the server's own model, which is recorded if it comes to its end."""
        with self._watched():
            yield
        result = answer.result
        if result is None:  # an error in the middle of a stream, which the client was told of
            return self.drop("failed")
        decision, messages = result.outcome.decision, messages_of(answer.request.prompt)  # type: ignore[arg-type]
        ids = array("I", result.outcome.ids[: decision.thinking_tokens])
        self.add(FinishedReply(messages, ids, decision.stop_cause == "end_of_thinking"))

    @contextmanager
    def copied(self, path: str, messages: Sequence[Message]) -> Iterator[ReplyCopy]:
        """Around a reply of the upstream at this path, whose bytes are copied."""
        copy = ReplyCopy()
        with self._watched():
            yield copy
        info = self.engine.info
        found = read_reply(path, copy.data or b"", (info.open_tag, info.close_tag))
        if found is None:
            self.drop("failed")
        else:
            self.add(FinishedReply(tuple(messages), found.thinking, found.ended))

    @contextmanager
    def _watched(self) -> Iterator[None]:
        """Counts a reply that does not come to its end."""
        try:
            yield
        except (ClientLeft, asyncio.CancelledError):
            self.drop("client_left")
            raise
        except Exception:
            self.drop("failed")
            raise

    def drop(self, reason: Dropped, message: str = "") -> None:
        """Count a reply that is not recorded; the message is logged the first time."""
        self.metrics.shadow_dropped.labels(reason).inc()
        if message and reason not in self._logged:
            self._logged.add(reason)
            log(message, logging.WARNING)

    def add(self, reply: FinishedReply) -> None:
        """Record this reply later."""
        if not len(reply.thinking):
            self.drop("no_thinking")
        elif self.full:
            self.drop("limit", f"the recording has {self.shadow.limit} traces: no more are recorded (--record-limit)")
        elif self._waiting + reply.size > BACKLOG_TOKENS:
            self.drop("busy", "replies come faster than they can be probed: some are not recorded (--shadow-share)")
        else:
            self._backlog.put_nowait(reply)
            self._waiting += reply.size
            self._unfinished += 1

    @property
    def full(self) -> bool:
        """Whether the run has as many traces as it may have."""
        return self.writer.count >= self.shadow.limit

    # The work

    async def _work(self) -> None:
        while True:
            reply = await self._backlog.get()
            self._waiting -= reply.size
            await self._record(reply)
            self._unfinished -= 1
            self._backlog.task_done()

    async def _record(self, reply: FinishedReply) -> None:
        try:
            if self.full:  # several are worked on at once
                return self.drop("limit")
            began = time.monotonic()
            trace, prompt_ids = await self._probed(reply)
            if not self.shadow.text:
                trace, prompt_ids = without_text(trace, self.key), ()
            await self.writer.add(trace, prompt_ids, time.monotonic() - began)
            self.metrics.shadow_recorded.inc()
        except CutShort:
            self.drop("cut_short")
        except StoreError as error:
            self.drop("write_failed", f"traces cannot be recorded: {error.message} {error.hint}")
        except CgrError as error:
            self.drop("probe_failed", f"a reply could not be probed: {error.message}")
        except Exception as error:  # noqa: BLE001 - the next reply must still be recorded
            self.drop("probe_failed")
            log("a reply could not be recorded", logging.ERROR, exception=error)

    async def _probed(self, reply: FinishedReply) -> tuple[RecordedTrace, tuple[int, ...]]:
        """The thinking with a probe at every interval and the final answer; and the ids of the prompt."""
        engine, run = self.engine, self.writer.config
        conversation = self.config.settings.prompt(reply.messages)
        prompt = await engine.prompt(conversation)
        trace = await self._trace(reply)
        cuts = tuple(at for at in interval_cuts(trace, run.interval) if at < trace.budget)
        spec = run.asking.spec(trace.format)
        retraced = RetraceEngine(engine, trace, cuts=cuts)
        room = trace.thinking_tokens + await answer_room(engine, spec)
        session = await retraced.open(conversation if engine.prober else prompt, Sampling(), room=room)
        try:
            outcome = await Driver(retraced, session, spec, full=True).run(AskAt(positions=cuts), run.budget, Abstention())
        finally:
            await session.close()
        final = outcome.decision.final
        assert final is not None
        return replace(trace, final=final, probes=outcome.decision.probes), prompt

    async def _trace(self, reply: FinishedReply) -> RecordedTrace:
        """What was thought, up to the budget of the run; the final answer is not there yet."""
        thinking, budget = reply.thinking, self.writer.config.budget
        ids = await self.engine.encode(thinking) if isinstance(thinking, str) else tuple(thinking)
        if len(ids) < budget and not reply.ended:
            raise CutShort
        ended: Ended = "end_of_thinking" if len(ids) < budget else "budget"
        text = question = ""
        if self.shadow.text:
            text, question = await self.engine.decode(ids[:budget]), shown(reply.messages)
        return RecordedTrace(
            question_id=self.key.question_id(reply.messages),
            seed=0,
            gold=None,
            thinking_tokens=min(len(ids), budget),
            ended=ended,
            budget=budget,
            final=Probe(0, "", 0.0, closed=False),
            question=question,
            format="math",
            ids=ids[:budget],
            text=text,
        )


def recorded_as(config: ServeConfig, engine: Engine) -> tuple[RunConfig, ProbeSet]:
    """What the run and its probe set say about how they were made. Temperature and top-p are those of each request."""
    assert config.shadow is not None
    resolved, info, probed = config.settings.resolve(engine.info), engine.info, (engine.prober or engine).info
    run = RunConfig(
        model=info.name,
        engine=info.engine,
        budget=resolved.budget,
        interval=resolved.interval,
        source=SHADOW_TEXT if config.shadow.text else SHADOW,
        fingerprint=info.fingerprint,
        temperature=None,
        top_p=None,
        instruction=config.settings.instruction,
        asking=Asking.of(resolved.settings, info),
        probe=True,
    )
    probe_set = ProbeSet("interval", run.interval, run.asking, probed.name, probed.fingerprint)
    if not all(satisfies(probe_set, request, run) for request in requests_of(resolved.rule)):
        raise UsageError(
            f"The rule {resolved.rule.name!r} needs other probes than those that are recorded.",
            "Leave --rule out: nothing is stopped here, and `cgr compare` tries the rules on the recording.",
        )
    return run, probe_set


def shown(messages: Sequence[Message]) -> str:
    """The text of a prompt: that of the one message, or all of them with who speaks."""
    if len(messages) == 1:
        return messages[0].content
    return "\n\n".join(f"{one.role}: {one.content}" for one in messages)
