"""The state of a promise as metrics. Every worker reads it from the same file, so any of them can report it."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from cgr.server.audit.promise import Promise


class PromiseCollector(Collector):
    """The calibration and what the audits found."""

    def __init__(self, promise: Promise) -> None:
        self.promise = promise

    def collect(self) -> Iterator[Metric]:
        """All metrics, when somebody reads them."""
        calibration, found = self.promise.calibration, self.promise.found
        info = GaugeMetricFamily("cgr_calibration_info", "The calibration in use.", labels=["hash"])
        info.add_metric([calibration.digest], 1)
        yield info
        yield _gauge("promise_epsilon", "The risk that is promised at most.", calibration.epsilon)
        yield _gauge("promise_parameter", "The value of the rule's main parameter in use.", self.promise.parameter)
        if found is None:
            return
        lower, upper = found.bounds(self.promise.options.delta)
        yield _counter("audit", "Audited requests.", found.former_audits + found.audits)
        yield _counter(
            "audit_losses", "Audited requests whose answer would have changed.", found.former_losses + found.losses
        )
        yield _counter("audit_dropped", "Requests that were not audited because there was no room.", found.dropped)
        yield _counter("audit_failed", "Audits that ended with an error.", found.failed)
        yield _gauge("audit_risk_lower", "Lower bound of the risk.", lower)
        yield _gauge("audit_risk_upper", "Upper bound of the risk.", upper)
        yield _gauge("promise_broken", "Whether the lower bound of the risk passed what is promised.", bool(found.broken))


def _gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"cgr_{name}", text, value=float(value))


def _counter(name: str, text: str, value: float) -> CounterMetricFamily:
    return CounterMetricFamily(f"cgr_{name}", text, value=float(value))
