"""The receivers of what roles tell: spans on their way to a collector, recorded once they have ended, and never waited
for; and a service that stores OpenLineage run events.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, Protocol, TypeAlias

import msgspec

from noetl_stream.model.traces import SPAN_BYTES, TRACE_BYTES, Trace, read_traceparent, trace_of, traceparent
from noetl_stream.telemetry.measures import Metric, Reading

SPANS: Final = Metric(
    "counter",
    "noetl_trace_spans",
    "Spans that were exported, refused by the collector, or dropped while it was away or too slow.",
    ("result",),
)

Attributes: TypeAlias = Mapping[str, str | int | float | bool]


SpanKind: TypeAlias = Literal["internal", "client", "server"]


class SpanLink(NamedTuple):
    """The span of another execution."""

    trace_id: str
    span_id: str


class Span(msgspec.Struct, frozen=True, gc=False):
    """An ended span. It contains no error messages, and no values of a playbook except those named as attributes, whose
    secrets are hidden.

    Attributes:
        parent_id: Empty for the root of a trace.
        started_ms, ended_ms: The times, since the epoch.
        error: The kind of its error; empty if it succeeded.
        kind: Whether something outside is called within it (``client``), or it answers such a call (``server``).
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
    kind: SpanKind = "internal"


class Tracing(Protocol):
    """An exporter of spans."""

    def is_sampled(self, trace: Trace) -> bool:
        """Whether spans of this trace are recorded: the same answer in every process with the same settings."""

    def record(self, span: Span) -> None:
        """Takes a span; drops and counts it if too many wait. May be called from any one thread."""

    def drop(self, spans: int) -> None:
        """Counts spans that were not recorded."""

    def readings(self) -> Sequence[Reading]:
        """Counts of spans by outcome: see :class:`~noetl_stream.telemetry.measures.Measured`."""

    async def close(self) -> None:
        """Exports the waiting spans, within a few seconds."""


class OwnSpan(NamedTuple):
    """A span of this process around the start of an execution.

    Attributes:
        trace: Its trace, with its parent as the caller.
        traceparent: The ``traceparent`` for the execution: this span, or the caller's if it is not sampled.
    """

    trace: Trace
    span_id: str
    is_sampled: bool
    traceparent: str


def span_within(tracing: Tracing, given: str, random_bytes: Callable[[int], bytes]) -> OwnSpan:
    """Begins a span in the trace of the caller, or a trace of its own.

    Args:
        given: The ``traceparent`` of the caller; any other text counts as none.
    """
    caller, span_id = read_traceparent(given), random_bytes(SPAN_BYTES).hex()
    if caller is None:
        trace = Trace(random_bytes(TRACE_BYTES).hex())
    else:
        trace = trace_of("", caller.trace_id, caller.caller_span)
    is_sampled = tracing.is_sampled(trace)
    own = traceparent(trace.trace_id, span_id, sampled=is_sampled)
    return OwnSpan(trace, span_id, is_sampled, own if is_sampled or caller is None else given)


class LineageReceiver(Protocol):
    async def send(self, event: Mapping[str, Any]) -> None:
        """Sends a run event. The same event may be sent more than once.

        Raises:
            Unreachable: the receiver did not accept the event; a retry may succeed.
            PayloadRefused: the receiver rejects the event for good.
        """

    async def close(self) -> None:
        """Closes the connections."""
