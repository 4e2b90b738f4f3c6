"""What a server did, by worker: for Prometheus, and as plain numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from http.server import HTTPServer
from typing import Any

from prometheus_client import CollectorRegistry, Histogram, start_http_server
from prometheus_client import Counter as Count
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

#: The ``worker`` of calls outside the clocks.
NOBODY = "none"
_CLOCKS = (0, 1, 2, 4, 8, 16, 32, 64)
_SECONDS = (0.001, 0.01, 0.1, 1.0, 10.0, 100.0)


class Metrics:
    """Counters of one server, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        here = self.registry
        self._pushes = Count("sparkdml_pushes", "Pushes by what became of them", ["worker", "verdict"], registry=here)
        self._pulls = Count("sparkdml_pulls", "Pulls answered", ["worker"], registry=here)
        self._received = Count("sparkdml_received_bytes", "Arrays received", ["worker"], registry=here)
        self._sent = Count("sparkdml_sent_bytes", "Arrays sent", ["worker"], registry=here)
        self._waits = Histogram(
            "sparkdml_wait_seconds", "Waits of pulls for others", ["worker"], registry=here, buckets=_SECONDS
        )
        self._staleness = Histogram(
            "sparkdml_staleness_clocks",
            "Clocks of pushes ahead of the slowest",
            ["worker"],
            registry=here,
            buckets=_CLOCKS,
        )

    def forget(self) -> None:
        """All that was counted by worker."""
        for metric in (self._pushes, self._pulls, self._received, self._sent, self._waits, self._staleness):
            metric.clear()

    def pushed(self, worker: str, verdict: str, size: int) -> None:
        self._pushes.labels(worker, verdict).inc()
        self._received.labels(worker).inc(size)

    def ahead(self, worker: str, clocks: int) -> None:
        self._staleness.labels(worker).observe(clocks)

    def pulled(self, worker: str, size: int) -> None:
        self._pulls.labels(worker).inc()
        self._sent.labels(worker).inc(size)

    def waited(self, worker: str, seconds: float) -> None:
        self._waits.labels(worker).observe(seconds)

    def watch(self, faults: Callable[[], Counter[str]], gauges: Callable[[], dict[str, float]]) -> None:
        """Have what others count told as well, whenever somebody asks."""
        self.registry.register(_Watched(faults, gauges))

    def numbers(self) -> dict[str, dict[str, float]]:
        """``{worker: {name: value}}``; names as Prometheus has them, with further labels in braces."""
        found: dict[str, dict[str, float]] = {}
        for sample in (sample for family in self.registry.collect() for sample in family.samples):
            if "worker" in sample.labels and not sample.name.endswith("_created"):
                labels = ",".join(value for name, value in sample.labels.items() if name != "worker")
                name = sample.name.removeprefix("sparkdml_") + (f"{{{labels}}}" if labels else "")
                found.setdefault(sample.labels["worker"], {})[name] = sample.value
        return found

    def serve(self, host: str, port: int) -> HTTPServer:
        """Answer ``GET /metrics`` until ``shutdown()``. Raises OSError."""
        server, _ = start_http_server(port, host, self.registry)
        return server


class _Watched:
    def __init__(self, faults: Callable[[], Counter[str]], gauges: Callable[[], dict[str, float]]) -> None:
        self._faults, self._gauges = faults, gauges

    def collect(self) -> Iterable[Metric]:
        refused: Any = CounterMetricFamily("sparkdml_faults", "Messages and connections turned away", labels=["reason"])
        for reason, count in sorted(self._faults().items()):
            refused.add_metric([reason], count)
        yield refused
        for name, value in self._gauges().items():
            yield GaugeMetricFamily(f"sparkdml_{name}", name.replace("_", " "), value=value)
