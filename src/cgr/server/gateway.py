"""What one worker process has: the model, the metrics, the places for requests, and the requests that are running."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, aclosing, contextmanager, nullcontext, suppress
from dataclasses import replace
from typing import Any, Protocol

import orjson

from cgr.engines.base import Engine
from cgr.errors import CgrError
from cgr.records import Message
from cgr.rules.base import THRESHOLD
from cgr.server.audit.serving import ServedPromise
from cgr.server.config import ServeConfig
from cgr.server.exchange import EventWriter, Exchange, milliseconds
from cgr.server.faults import ApiError, api_error, sentence
from cgr.server.gate import Gate
from cgr.server.generation import Answer, AnswerDelta, Begun, Ended, Generation, ProbeMade, ReasoningDelta, ServeEvent
from cgr.server.logs import log
from cgr.server.metrics import Metrics, missed_cache
from cgr.server.proxy import Proxy
from cgr.server.reading import RequestReader
from cgr.server.record.recorder import OWN_SESSIONS, Recorder
from cgr.server.record.replies import ReplyCopy
from cgr.server.result import Result

SHUTTING_DOWN = ApiError(503, "The server is shutting down.", code="shutting_down", wait=1.0)


class StreamRenderer(Protocol):
    """Turns events into the bytes of a stream."""

    async def frames(self, event: ServeEvent) -> bytes: ...

    def thought(self, text: str) -> bytes:
        """The frames of a `ReasoningDelta`. Not asynchronous, as it is called for every token of every stream."""
        ...

    def error(self, error: ApiError) -> bytes: ...


class WholeRenderer(Protocol):
    """Collects events into one body."""

    async def add(self, event: ServeEvent) -> None: ...

    def body(self, result: Result) -> dict[str, Any]: ...


MakeStream = Callable[[Generation, Engine, float | None], StreamRenderer]
MakeWhole = Callable[[Generation, Engine, float | None], WholeRenderer]


class Gateway:
    """Everything that the endpoints share."""

    def __init__(self, config: ServeConfig) -> None:
        self.config, self.metrics = config, Metrics()
        observe = self.metrics.observe_upstream if config.gateway else None
        self.promise = ServedPromise(config, self.metrics)
        self._recording = 0 if config.gateway or not config.shadow else OWN_SESSIONS  # sessions for the recorder
        sessions = config.sessions + self.promise.places + self._recording
        self.engine: Engine = replace(config.model, sessions=sessions, observe=observe).engine()
        self.recorder: Recorder | None = None
        self._ends = 0.0  # when requests must have ended, after a signal
        self.running: set[Exchange] = set()
        self.draining, self._idle = False, asyncio.Event()
        self._lengths = (0, 0.0)  # of thinking that nothing stopped: how many, their mean
        self._warned = False
        self.reader: RequestReader
        self.gate: Gate
        self.pass_gate: Gate
        self.proxy: Proxy | None = None

    async def connect(self) -> None:
        """Load the model or reach the upstreams."""
        await self.engine.connect()
        info, config = self.engine.info, self.config
        if config.shadow:
            recorder = Recorder(config, self.engine, self.metrics)
            await recorder.open()
            self.recorder = recorder
        key = self.recorder.key if self.recorder else None
        self.reader = RequestReader(config, info.name, (info.open_tag, info.close_tag), self.promise.promise, key)
        free = info.sessions - self._recording if info.sessions else None
        places = self.promise.for_clients(free, config.sessions)
        self.gate = Gate(places, config.queue, config.queue_seconds, self.metrics)
        self.promise.start(self.engine, self.gate)
        self.pass_gate = Gate(config.sessions, config.queue, config.queue_seconds, self.metrics)
        if config.gateway:
            self.proxy = Proxy(self.engine, self.metrics, config.ping_seconds, config.client_seconds)
        for note in self.engine.notes:
            log(note, logging.WARNING)

    async def finish_recording(self) -> None:
        """Probe what is left, within the time for requests, and write it."""
        recorder, self.recorder = self.recorder, None
        if recorder:
            await recorder.close(self._ends - time.monotonic())

    async def close(self) -> None:
        """Close all connections."""
        await self.promise.abandon()
        if self.proxy:
            await self.proxy.close()
        await self.engine.close()

    @property
    def mean(self) -> float | None:
        """Mean thinking tokens without early stops: as configured, else as seen in plain and shadow requests."""
        if self.config.baseline_tokens is not None:
            return self.config.baseline_tokens
        return self._lengths[1] if self._lengths[0] else None

    async def drain(self) -> None:
        """Accept no new requests; after a while, end those that are still running."""
        self.draining, self._ends = True, time.monotonic() + self.config.shutdown_seconds
        await self.promise.abandon()
        with suppress(TimeoutError):
            async with asyncio.timeout(self.config.shutdown_seconds):
                while self.running:
                    self._idle.clear()
                    await self._idle.wait()
        for exchange in list(self.running):
            exchange.end(SHUTTING_DOWN)

    @contextmanager
    def counted(self, exchange: Exchange) -> Iterator[None]:
        """Count an exchange as running."""
        self.running.add(exchange)
        try:
            yield
        finally:
            self.running.discard(exchange)
            if not self.running:
                self._idle.set()

    # Answering

    async def answer(self, exchange: Exchange, request: Generation, stream: MakeStream, whole: MakeWhole) -> None:
        """Reply to a request that this server answers itself."""
        async with self.gate.place() as waited:
            answer = Answer(self.engine, self.config, request, exchange.received, waited)
            exchange.fields["mode"], exchange.answer, answer.follow = request.mode, answer, self.promise.follow
            recording = self.recorder.answered(answer) if self.recorder and request.recorded else nullcontext()
            try:
                with recording:
                    if request.stream:
                        await self._stream(exchange, answer, stream(request, self.engine, self.mean))
                    else:
                        await self._whole(exchange, answer, whole(request, self.engine, self.mean))
            finally:
                self.promise.after(self.engine, answer)

    def copying(self, path: str, messages: Sequence[Message]) -> AbstractContextManager[ReplyCopy | None]:
        """A copy of a reply of the upstream, which is recorded afterwards; None without messages."""
        return self.recorder.copied(path, messages) if self.recorder and messages else nullcontext()

    async def _whole(self, exchange: Exchange, answer: Answer, renderer: WholeRenderer) -> None:
        result: Result | None = None
        async with aclosing(answer.__aiter__()) as events:
            async for event in events:
                self._note(exchange, event)
                await renderer.add(event)
                result = event.result if isinstance(event, Ended) else result
        assert result is not None
        headers = {"x-cgr-overhead-ms": milliseconds(result.overhead), "x-cgr-stop-cause": result.stop_cause}
        if answer.request.mode != "off":
            headers["x-cgr-certainty"] = f"{result.outcome.decision.certainty:.6g}"
        await exchange.reply_json(renderer.body(result), headers=headers)

    async def _stream(self, exchange: Exchange, answer: Answer, renderer: StreamRenderer) -> None:
        writer = EventWriter(exchange, self.config.ping_seconds, self.config.client_seconds)

        def send_thoughts(texts: list[str]) -> bool:
            if ReasoningDelta not in exchange.seen or not writer.can_send_now:
                return False
            try:
                frames = b"".join(map(renderer.thought, filter(None, texts)))
            except orjson.JSONEncodeError:  # half of a surrogate pair: the reader of the events reports it
                return False
            writer.send_now(frames)
            return True

        answer.pass_on = send_thoughts
        try:
            async with aclosing(answer.batches()) as batches:
                async for events in batches:
                    for event in events:
                        self._note(exchange, event)
                        if isinstance(event, ReasoningDelta):
                            writer.add(renderer.thought(event.text))
                            continue
                        if isinstance(event, Begun):
                            writer.headers["x-cgr-overhead-ms"] = milliseconds(event.overhead)
                        writer.add(await renderer.frames(event))
                    if writer.pending:
                        await writer.flush()
            await writer.flush(more=False)
        except (Exception, asyncio.CancelledError) as error:
            failure = exchange.ending or error
            if not exchange.started or not isinstance(failure, Exception):
                raise
            self.report(exchange, failure)
            writer.add(renderer.error(api_error(failure, gateway=self.config.gateway)))
            await writer.flush(more=False)
        finally:
            await writer.close()

    def _note(self, exchange: Exchange, event: ServeEvent) -> None:
        """Metrics and the log entry of an event."""
        kind = type(event)
        if kind is ReasoningDelta or kind is AnswerDelta:
            if kind not in exchange.seen:
                self._note_first(exchange, kind)
            return
        match event:
            case ProbeMade(probe):
                given = exchange.answer.request.settings.threshold
                self.metrics.probed(probe, THRESHOLD if given is None else given)
                if missed_cache(probe):
                    self._missed_cache()
            case Ended(result):
                self._finished(exchange, result)

    def _note_first(self, exchange: Exchange, kind: type[ServeEvent]) -> None:
        seconds = time.perf_counter() - exchange.received
        if not exchange.seen:
            self.metrics.first_token.observe(seconds)
        if kind is AnswerDelta:
            self.metrics.first_answer.observe(seconds)
        exchange.seen.add(kind)

    def _missed_cache(self) -> None:
        self.metrics.cache_misses.inc()
        if not self._warned:
            self._warned = True
            log("probes miss the cache of the server: check its prefix caching, and how its router uses X-Session-ID",
                logging.WARNING)  # fmt: skip

    def _finished(self, exchange: Exchange, result: Result) -> None:
        self.metrics.finished(result, self.mean)
        if result.request.mode != "on" and result.request.thinks:
            count, mean = self._lengths
            self._lengths = count + 1, mean + (result.thinking_tokens - mean) / (count + 1)
        exchange.fields |= {
            "stop_cause": result.stop_cause,
            "thinking_tokens": result.thinking_tokens,
            "answer_tokens": result.answer_tokens,
            "probes": len(result.outcome.decision.probes),
        }

    def report(self, exchange: Exchange, error: Exception) -> None:
        """Log an error that is not the client's."""
        sent = api_error(error, gateway=self.config.gateway)
        exchange.fields["error"] = sentence(error) if isinstance(error, CgrError) else sent.message
        self.metrics.requests.labels(self.engine.info.name, "error").inc()
        if sent.code == "internal_error":
            log("a request failed", logging.ERROR, exception=error, id=exchange.id)
