"""Spans on their way to a collector: recorded once they have ended, and never waited for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, Protocol, TypeAlias

import msgspec

from noetl_stream.model.traces import Trace
from noetl_stream.telemetry.measures import Metric, Reading

SPANS: Final = Metric(
    "counter",
    "noetl_trace_spans",
    "Spans that were exported, refused by the collector, or dropped while it was away or too slow.",
    ("result",),
)

Attributes: TypeAlias = Mapping[str, str | int | float]


class SpanLink(NamedTuple):
    """The span of another execution."""

    trace_id: str
    span_id: str


class Span(msgspec.Struct, frozen=True, gc=False):
    """A span that has ended. It holds no value of a playbook and no message of an error, which may have secrets.

    Attributes:
        parent_id: Empty for the root of a trace.
        started_ms, ended_ms: Since the epoch.
        error: The kind of the error it ended with; empty if it went well.
        is_call: Whether something outside is called within it.
    """

    trace_id: str
    span_id: str
    parent_id: str
    name: str
    started_ms: float
    ended_ms: float
    attributes: Attributes
    error: str = ""
    links: Sequence[SpanLink] = ()
    is_call: bool = False


class Tracing(Protocol):
    """Where spans go."""

    def is_sampled(self, trace: Trace) -> bool:
        """Whether spans of this trace are recorded: the same answer in every process with the same settings."""

    def record(self, span: Span) -> None:
        """Takes a span; drops and counts it if too many wait. Any one thread may call it."""

    def drop(self, spans: int) -> None:
        """Counts spans that were not recorded."""

    def readings(self) -> Sequence[Reading]:
        """Counts of spans by outcome: see :class:`~noetl_stream.telemetry.measures.Measured`."""

    async def close(self) -> None:
        """Exports what waits, within a few seconds."""
