"""Prometheus metrics. With several workers each process writes to files, and any of them can report the sums."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead
from prometheus_client.registry import Collector

from cgr import __version__
from cgr.engines.completions.http import RequestKind

if TYPE_CHECKING:
    from cgr.records import Probe
    from cgr.server.result import Result

FOLDER = "PROMETHEUS_MULTIPROC_DIR"
SECONDS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000)
CERTAINTIES = (0.5, 0.8, 0.9, 0.95, 0.96, 0.97, 0.98, 0.99, 0.995, 0.999, 1)
CACHE_SHARE = 0.5  # a probe whose prompt was cached to less than this missed the cache
CACHE_LEAST = 256  # tokens of a prompt from which on this is looked at


class Metrics:
    """The metrics of one process."""

    def __init__(self) -> None:
        self.several = FOLDER in os.environ
        self.registry = CollectorRegistry()
        self.http = self._counter("http_requests", "Requests by endpoint and status.", "endpoint", "code")
        self.requests = self._counter("requests", "Finished requests by stop cause.", "model", "stop_cause")
        self.in_flight = self._gauge("requests_in_flight", "Requests that are being worked on.")
        self.queued = self._gauge("requests_queued", "Requests that wait for a place.")
        self.rejected = self._counter("rejected", "Requests that were turned away.", "reason")
        self.disconnects = self._counter("client_disconnects", "Clients that left before the end of their reply.")
        self.queue_wait = self._seconds("queue_wait_seconds", "Time in the queue.")
        self.duration = self._seconds("request_duration_seconds", "From the request to the end of its reply.")
        self.first_token = self._seconds("time_to_first_token_seconds", "From the request to the first text.")
        self.first_answer = self._seconds("time_to_first_answer_token_seconds", "From the request to the answer.")
        self.overhead = self._seconds("overhead_seconds", "From the request to the open session, without the queue.")
        self.probe_duration = self._seconds("probe_duration_seconds", "Duration of a probe.")
        self.thinking = self._counter("thinking_tokens", "Thinking tokens in replies.")
        self.answers = self._counter("answer_tokens", "Tokens of answers.")
        self.surplus = self._counter("surplus_tokens", "Tokens that were generated and not used.")
        self.probe_tokens = self._counter("probe_tokens", "Tokens of probes.", "kind")
        self.budget = self._counter("budget_tokens", "Thinking budgets of finished requests.")
        self.baseline = self._counter("baseline_tokens", "Thinking tokens that the same requests take without early stops.")
        self.probes = self._counter("probes", "Probes by outcome.", "outcome")
        self.cache_misses = self._counter("probe_cache_misses", "Probes whose prompt the server had to read again.")
        self.probe_certainty = self._histogram("probe_certainty", "Certainties of probes.", CERTAINTIES)
        self.stop_certainty = self._histogram("stop_certainty", "Certainties at the end.", CERTAINTIES)
        self.abstentions = self._counter("abstentions", "Replies without an answer.")
        self.upstream = self._counter("upstream_requests", "Requests to upstreams.", "upstream", "kind", "code")
        self.cancelled = self._counter("upstream_cancelled", "Requests to upstreams left before their end.", "phase")
        self.shadow_recorded = self._counter("shadow_recorded", "Traces that were recorded.")
        self.shadow_dropped = self._counter("shadow_dropped", "Chosen requests that were not recorded.", "reason")
        self.requests_covered = self._counter("requests_covered", "Requests by whether a promise covers them.", "covered")
        self.audit_tokens = self._counter("audit_tokens", "Tokens that were thought for audits, behind the replies.")
        self._others: list[Collector] = []
        self.build = Gauge(
            "cgr_build_info", "The version of cgr.", ["version"], registry=self.registry, multiprocess_mode="max"
        )
        self.build.labels(__version__).set(1)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"cgr_{name}", text, labels, registry=self.registry)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"cgr_{name}", text, labels, registry=self.registry, multiprocess_mode="livesum")

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
        return Histogram(f"cgr_{name}", text, registry=self.registry, buckets=buckets)

    def _seconds(self, name: str, text: str) -> Histogram:
        return self._histogram(name, text, SECONDS)

    def add(self, other: Collector) -> None:
        """Report the metrics of this collector too. They are the same in all workers."""
        self._others.append(other)

    def finished(self, result: Result, mean: float | None) -> None:
        """A request was answered."""
        self.requests.labels(result.model, result.stop_cause).inc()
        self.overhead.observe(result.overhead)
        self.thinking.inc(result.thinking_tokens)
        self.answers.inc(result.answer_tokens)
        self.surplus.inc(result.outcome.wasted_tokens)
        self.budget.inc(result.budget)
        stoppable = result.request.mode == "on" and result.request.thinks
        unstopped = mean if stoppable else None  # one that nothing stops is its own baseline
        self.baseline.inc(result.thinking_tokens if unstopped is None else unstopped)
        for kind, tokens in result.probe_tokens.items():
            self.probe_tokens.labels(kind).inc(tokens)
        if result.request.mode != "off":
            self.stop_certainty.observe(result.outcome.decision.certainty)
            self.abstentions.inc(result.outcome.decision.abstained)

    def probed(self, probe: Probe, threshold: float) -> None:
        """A probe was made."""
        outcome = "unclosed" if not probe.closed else "certain" if probe.certainty >= threshold else "uncertain"
        self.probes.labels("bound" if probe.bound else outcome).inc()
        self.probe_certainty.observe(probe.certainty)
        self.probe_duration.observe(probe.seconds)

    def observe_upstream(self, address: str, kind: RequestKind, code: str) -> None:
        """A request to an upstream ended."""
        self.upstream.labels(address, kind, code).inc()
        if code == "cancelled":
            self.cancelled.labels(kind).inc()

    def text(self) -> bytes:
        """All metrics in Prometheus' format; those of all workers together."""
        others = CollectorRegistry()
        for one in self._others:
            others.register(one)
        return self._own_text() + generate_latest(others)

    def _own_text(self) -> bytes:
        if not self.several:
            return generate_latest(self.registry)
        registry = CollectorRegistry()
        _forget_dead_workers(Path(os.environ[FOLDER]))
        MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        return generate_latest(registry)


def missed_cache(probe: Probe) -> bool:
    """Whether the server read most of a probe's prompt again, as far as it says so."""
    whole = probe.cached + probe.prefilled
    return whole >= CACHE_LEAST and probe.cached < whole * CACHE_SHARE


def _forget_dead_workers(folder: Path) -> None:
    """A worker that died has no requests in flight."""
    for file in folder.glob("gauge_live*_*.db"):
        pid = file.stem.rsplit("_", 1)[1]
        if pid.isdigit() and not Path(f"/proc/{pid}").exists() and Path("/proc").exists():
            mark_process_dead(pid)  # type: ignore[no-untyped-call]
