"""Spans of requests: those that change something, or whose caller is in a trace, begin or continue one."""

from __future__ import annotations

from typing import Final, NamedTuple

from aiohttp import web

from noetl_stream.gateway.access.guard import CALLER
from noetl_stream.model.traces import read_traceparent
from noetl_stream.ports.clock import Clock
from noetl_stream.ports.traces import OwnSpan, Span, Tracing, span_within
from noetl_stream.telemetry.structured_logs import TRACE_ID

TRACEPARENT: Final = web.RequestKey("traceparent", str)
"""The caller's ``traceparent`` for executions that a request starts; if unset, the request's own."""

_READS: Final = frozenset({"GET", "HEAD"})


class BegunSpan(NamedTuple):
    own: OwnSpan
    began_ms: int


class RequestTraces:
    """Records the spans of requests.

    Args:
        tracing: The exporter of spans; ``None``: executions belong to the caller's own span.
    """

    def __init__(self, tracing: Tracing | None, clock: Clock) -> None:
        self._tracing = tracing
        self._clock = clock

    def begin(self, request: web.Request) -> BegunSpan | None:
        """Begins the span of a request, and names its trace in log lines; ``None`` if no span is recorded."""
        given = request.headers.get("traceparent", "")
        caller = read_traceparent(given)
        TRACE_ID.set(caller.trace_id if caller is not None else "")
        if self._tracing is None or (caller is None and request.method in _READS):
            return None
        own = span_within(self._tracing, given, self._clock.random_bytes)
        TRACE_ID.set(own.trace.trace_id)
        request[TRACEPARENT] = own.traceparent
        return BegunSpan(own, self._clock.now_ms()) if own.is_sampled else None

    def end(self, begun: BegunSpan | None, request: web.Request, status: int) -> None:
        """Records the span of an answered request, unless its caller is unknown: anybody could make spans."""
        if self._tracing is None or begun is None or CALLER not in request:
            return
        resource = request.match_info.route.resource
        route = resource.canonical if resource is not None else ""
        self._tracing.record(
            Span(
                trace_id=begun.own.trace.trace_id,
                span_id=begun.own.span_id,
                parent_id=begun.own.trace.caller,
                name=f"{request.method} {route}",
                started_ms=begun.began_ms,
                ended_ms=self._clock.now_ms(),
                attributes={
                    "http.request.method": request.method,
                    "http.route": route,
                    "http.response.status_code": status,
                },
                error=str(status) if status >= 500 else "",
                kind="server",
            )
        )
