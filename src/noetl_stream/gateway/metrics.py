"""Counters of a gateway."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import Final

from noetl_stream.telemetry.measures import Durations, Metric, Reading

UNKNOWN_ROUTE: Final = "none"
"""The name under which unknown addresses are counted together, since anybody can invent them."""

REQUESTS: Final = Metric(
    "counter", "noetl_gateway_requests", "Requests answered, by route and status.", ("route", "status")
)
DURATIONS: Final = Metric(
    "histogram",
    "noetl_gateway_request_duration_seconds",
    "From the first byte of a request to its answer, by route.",
    ("route",),
)
CLOSED: Final = Metric(
    "counter",
    "noetl_gateway_connections_closed",
    "Connections that the gateway closed or refused: late-head, slow-reader, gave-way, refused.",
    ("reason",),
)
LEFT_OUT: Final = Metric(
    "counter",
    "noetl_gateway_refusals_left_out",
    "Refusals that the audit counts in the left_out of another entry.",
)
CONNECTIONS: Final = Metric("gauge", "noetl_gateway_connections", "Open connections.")
IN_FLIGHT: Final = Metric("gauge", "noetl_gateway_requests_in_flight", "Requests under way.")
WAITS: Final = Metric("gauge", "noetl_gateway_waits", "Requests that wait for the end of an execution.")
STREAMS: Final = Metric("gauge", "noetl_gateway_open_streams", "Event streams that are open.")
LARGE_BODIES: Final = Metric("gauge", "noetl_gateway_large_bodies", "Requests under way with a large body.")
CHECKS: Final = Metric("gauge", "noetl_gateway_checks", "Playbooks that are being checked or registered.")
BEHIND: Final = Metric("gauge", "noetl_gateway_events_behind", "Messages of EVENTS that no server has folded yet.")


class Metrics:
    """Counters, and readings of other parts."""

    def __init__(self) -> None:
        self._requests: Counter[tuple[str, ...]] = Counter()
        self._durations: defaultdict[str, Durations] = defaultdict(Durations)
        self._closed: Counter[str] = Counter()
        self._left_out = 0
        self._watched: list[tuple[Metric, Callable[[], float]]] = []

    def watch(self, metric: Metric, read: Callable[[], float]) -> None:
        """Shows a number that is read on each scrape."""
        self._watched.append((metric, read))

    def answered(self, operation: str, status: int, seconds: float) -> None:
        """Counts a request. ``operation`` is the route's, or :data:`UNKNOWN_ROUTE`."""
        self._requests[operation, str(status)] += 1
        self._durations[operation].add(seconds)

    def closed(self, reason: str) -> None:
        self._closed[reason] += 1

    def left_out(self) -> None:
        """Counts a refusal without an entry of its own in the audit."""
        self._left_out += 1

    def readings(self) -> Sequence[Reading]:
        return [
            REQUESTS.read_each(self._requests),
            DURATIONS.read_each(self._durations),
            CLOSED.read_each(self._closed),
            LEFT_OUT.read(self._left_out),
            *(metric.read(read()) for metric, read in self._watched),
        ]
