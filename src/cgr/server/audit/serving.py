"""The promise of a running server: what a gateway calls at each step of a request."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from cgr.engines.base import Engine
from cgr.errors import UsageError
from cgr.server.audit.auditor import Auditor
from cgr.server.audit.collector import PromiseCollector
from cgr.server.audit.promise import Promise
from cgr.server.config import ServeConfig
from cgr.server.gate import Gate
from cgr.server.generation import Answer, Opened
from cgr.server.metrics import Metrics


class ServedPromise:
    """Nothing happens here on a server without a calibration."""

    def __init__(self, config: ServeConfig, metrics: Metrics) -> None:
        self.options = config.promise
        self.places = config.promise.places if config.promise else 0  # sessions for audits, beside those for clients
        self.promise = Promise(config.promise, config.settings) if config.promise else None
        self.auditor: Auditor | None = None
        self._covered, self._tokens = metrics.requests_covered, metrics.audit_tokens
        if self.promise:
            metrics.add(PromiseCollector(self.promise))

    def for_clients(self, sessions: int | None, wanted: int) -> int:
        """Places for clients, of a model with this many sessions: those that audits do not have. An upstream with few slots
        gives audits at most half of them."""
        found = wanted + self.places if sessions is None else sessions
        if found < wanted + self.places:
            if found < 2 and self.places:
                raise UsageError(
                    "The upstream can think about one question at a time, which leaves no place for audits.",
                    "Leave --audit out, or give the upstream more slots (--parallel).",
                )
            self.places = min(self.places, found // 2)
        return found - self.places

    def start(self, engine: Engine, gate: Gate) -> None:
        """The model is loaded: check that the promise is for it, and begin to audit."""
        if self.promise is None or self.options is None:
            return
        self.promise.check(engine)
        if self.options.audit:
            audit = replace(self.options.audit, sessions=self.places)
            self.auditor = Auditor(self.promise, audit, gate.calm, self._tokens)
            self.auditor.start()

    def follow(self, answer: Answer, opened: Opened) -> None:
        """A request begins."""
        if self.promise is None:
            return
        answer.coverage = self.promise.coverage(answer.request, opened.resolved)
        self._covered.labels("no" if answer.coverage.why else "yes").inc()
        if self.auditor:
            answer.chosen = self.auditor.choose(answer.coverage)

    def after(self, engine: Engine, answer: Answer) -> None:
        """The reply is out, or its client left."""
        if self.auditor:
            self.auditor.after(engine, answer)

    async def abandon(self) -> None:
        """End all audits."""
        if self.auditor:
            await self.auditor.abandon()

    def health(self) -> dict[str, Any]:
        """What `/health` says about it."""
        return {"promise": self.promise.summary()} if self.promise else {}
