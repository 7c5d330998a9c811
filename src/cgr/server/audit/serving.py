"""The promise of a running server: what a gateway calls at each step of a request."""

from __future__ import annotations

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
        self.promise = Promise(config.promise, config.settings) if config.promise else None
        self.auditor: Auditor | None = None
        self._covered, self._tokens = metrics.requests_covered, metrics.audit_tokens
        if self.promise:
            metrics.add(PromiseCollector(self.promise))

    @property
    def places(self) -> int:
        """Sessions for audits, beside those for clients."""
        return self.options.places if self.options else 0

    def free_for_clients(self, sessions: int | None, wanted: int) -> int:
        """Places for clients on a model with this many sessions: audits never take one of them."""
        if sessions is None:
            return wanted
        if sessions <= self.places:
            raise UsageError(
                f"The server can think about {sessions} at once, which leaves no place for clients beside the audits.",
                "Lower --audit-sessions, or give the upstream more slots (--parallel).",
            )
        return sessions - self.places

    def start(self, engine: Engine, gate: Gate) -> None:
        """The model is loaded: check that the promise is for it, and begin to audit."""
        if self.promise is None or self.options is None:
            return
        self.promise.check(engine)
        if self.options.audit:
            self.auditor = Auditor(self.promise, self.options.audit, gate.calm, self._tokens)
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
