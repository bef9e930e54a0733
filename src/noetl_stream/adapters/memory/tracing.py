"""Spans in memory, for tests."""

from __future__ import annotations

from collections.abc import Sequence

from noetl_stream.model.traces import Trace
from noetl_stream.ports.traces import SPANS, Span
from noetl_stream.telemetry.measures import Reading


class MemoryTracing:
    """:class:`~noetl_stream.ports.traces.Tracing` that keeps all spans, unless a caller does not sample its own."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.dropped = 0

    def is_sampled(self, trace: Trace) -> bool:
        return trace.is_callers_sampled or not trace.caller

    def record(self, span: Span) -> None:
        self.spans.append(span)

    def drop(self, spans: int) -> None:
        self.dropped += spans

    def readings(self) -> Sequence[Reading]:
        return (SPANS.read_each({"exported": len(self.spans), "dropped": self.dropped}),)

    async def close(self) -> None:
        pass
