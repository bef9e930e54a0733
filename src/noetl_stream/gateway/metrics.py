"""What ``/metrics`` tells Prometheus of this gateway."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from noetl_stream.model.messages import MemoryUse

MEDIA: Final = "text/plain; version=0.0.4; charset=utf-8"
UNKNOWN_ROUTE: Final = "none"
"""Requests for what there is not are counted as one: anybody can invent addresses."""

BUCKETS_S: Final = (0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0)

MOST_QUARANTINED: Final = 100


class Metrics:
    """In a registry of its own: two gateways in one process do not meet."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "noetl_gateway_requests", "Requests answered.", ["route", "status"], registry=self._registry
        )
        self._seconds = Histogram(
            "noetl_gateway_request_seconds",
            "From the first byte of a request to its answer.",
            ["route"],
            buckets=BUCKETS_S,
            registry=self._registry,
        )
        self._closed = Counter(
            "noetl_gateway_connections_closed",
            "Connections that the gateway closed or refused: late-head, slow-reader, gave-way, refused.",
            ["why"],
            registry=self._registry,
        )
        self._unrecorded = Counter(
            "noetl_gateway_refusals_left_out",
            "Refusals that the audit counts in another entry's left_out.",
            registry=self._registry,
        )

        self._quarantined = Gauge(
            "noetl_gateway_executions_quarantined",
            f"Executions that are quarantined, counted up to {MOST_QUARANTINED}.",
            registry=self._registry,
        )

        self._held = Gauge(
            "noetl_memory_bytes",
            "What servers and workers hold in memory of what is bounded.",
            ["role", "process", "what"],
            registry=self._registry,
        )
        self._held_limits = Gauge(
            "noetl_memory_limit_bytes",
            "How much of it they hold at most.",
            ["role", "process", "what"],
            registry=self._registry,
        )
        self._states = Gauge(
            "noetl_server_states",
            "Of each server since it started: states evicted, snapshots written, snapshots thrown away.",
            ["process", "what"],
            registry=self._registry,
        )

    def memory(self, uses: Sequence[MemoryUse]) -> None:
        """Shows what these processes hold, and no others."""
        for gauge in (self._held, self._held_limits, self._states):
            gauge.clear()
        for use in uses:
            for what, held in use.held.items():
                self._held.labels(use.role, use.process, what).set(held)
            for what, limit in use.limits.items():
                self._held_limits.labels(use.role, use.process, what).set(limit)
            if use.role == "server":
                self._states.labels(use.process, "evicted").set(use.evictions)
                self._states.labels(use.process, "snapshots_written").set(use.snapshots_written)
                self._states.labels(use.process, "snapshots_thrown_away").set(use.snapshots_thrown_away)

    def watch(self, name: str, words: str, read: Callable[[], float]) -> None:
        """Shows a number that is read whenever somebody asks, as ``noetl_gateway_<name>``."""
        Gauge(f"noetl_gateway_{name}", words, registry=self._registry).set_function(read)

    def answered(self, operation: str, status: int, seconds: float) -> None:
        """Counts a request. ``operation`` is the route's, or :data:`UNKNOWN_ROUTE`."""
        self._requests.labels(operation, str(status)).inc()
        self._seconds.labels(operation).observe(seconds)

    def closed(self, why: str) -> None:
        """Counts a connection that the gateway closed or refused."""
        self._closed.labels(why).inc()

    def left_out(self) -> None:
        """Counts a refusal that gets no entry of its own in the audit."""
        self._unrecorded.inc()

    def quarantined(self, count: float) -> None:
        """Shows how many executions are quarantined; NaN if that is unknown."""
        self._quarantined.set(count)

    def text(self) -> bytes:
        """Everything, in Prometheus' text form."""
        return generate_latest(self._registry)
