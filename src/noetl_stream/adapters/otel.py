"""The export of spans to a collector by OTLP over HTTP, in batches, with OpenTelemetry's SDK in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import Any, Final

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import Decision
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, NonRecordingSpan, SpanContext, SpanKind, TraceFlags, set_span_in_context
from opentelemetry.trace.status import Status, StatusCode
from opentelemetry.util.re import parse_env_headers

from noetl_stream import __version__
from noetl_stream.errors import UsageError
from noetl_stream.lru import LruCache
from noetl_stream.model.traces import Trace
from noetl_stream.ports.traces import SPANS, Span
from noetl_stream.settings.monitoring import TraceSettings
from noetl_stream.telemetry.measures import Reading

CLOSE_S: Final = 2.0
"""The time that waiting spans may take at the end; a running export may take longer."""

SAMPLES_KEPT: Final = 10_000
SAMPLED: Final = TraceFlags(TraceFlags.SAMPLED)
NOT_SAMPLED: Final = TraceFlags(TraceFlags.DEFAULT)
SCOPE: Final = InstrumentationScope("noetl-stream", __version__)


class OtelTracing:
    """:class:`~noetl_stream.ports.traces.Tracing` of one role.

    Args:
        role: Names the service, unless the environment does.
        process: The name of the process in events and metrics.

    Raises:
        UsageError: a variable that the SDK reads is invalid.
    """

    def __init__(self, settings: TraceSettings, role: str, process: str) -> None:
        provider = TracerProvider(resource=_resource(role, process), shutdown_on_exit=False)
        self._resource, self._sampler = provider.resource, provider.sampler
        self._max_queue = settings.max_queue
        self._recorded = self._dropped = 0
        self._samples: LruCache[Trace, bool] = LruCache(SAMPLES_KEPT)
        try:
            headers = parse_env_headers(settings.headers, liberal=True)
            self._exporter = _Counted(OTLPSpanExporter(settings.endpoint, headers=headers))
            self._processor = BatchSpanProcessor(self._exporter, settings.max_queue)
        except ValueError as error:
            raise UsageError(f"invalid OTEL_ variable: {error}") from None

    def is_sampled(self, trace: Trace) -> bool:
        known = self._samples.get(trace)
        if known is None:
            known = self._ask_sampler(trace)
            self._samples.put(trace, known)
        return known

    def _ask_sampler(self, trace: Trace) -> bool:
        around = Context()
        if trace.caller:
            flags = SAMPLED if trace.is_callers_sampled else NOT_SAMPLED
            caller = SpanContext(int(trace.trace_id, 16), int(trace.caller, 16), is_remote=True, trace_flags=flags)
            around = set_span_in_context(NonRecordingSpan(caller), around)
        decision = self._sampler.should_sample(around, int(trace.trace_id, 16), "execution").decision
        return decision is Decision.RECORD_AND_SAMPLE

    def record(self, span: Span) -> None:
        # The SDK drops the oldest span of a full queue with a line in the log for each.
        if self._recorded - self._exporter.finished_count >= self._max_queue:
            self._dropped += 1
            return
        self._recorded += 1
        self._processor.on_end(self._readable(span))

    def drop(self, spans: int) -> None:
        self._dropped += spans

    def readings(self) -> Sequence[Reading]:
        counts = {"exported": self._exporter.exported, "refused": self._exporter.refused, "dropped": self._dropped}
        return (SPANS.read_each(counts),)

    async def close(self) -> None:
        hurry = threading.Timer(CLOSE_S, self._exporter.shutdown)
        hurry.daemon = True
        hurry.start()
        await asyncio.to_thread(self._processor.shutdown)
        hurry.cancel()

    def _readable(self, span: Span) -> ReadableSpan:
        return ReadableSpan(
            name=span.name,
            context=_context(span.trace_id, span.span_id),
            parent=_context(span.trace_id, span.parent_id) if span.parent_id else None,
            resource=self._resource,
            attributes={**span.attributes, "error.type": span.error} if span.error else span.attributes,
            links=[Link(_context(*link)) for link in span.links],
            kind=SpanKind[span.kind.upper()],
            status=Status(StatusCode.ERROR, span.error) if span.error else Status(),
            start_time=round(span.started_ms * 1_000_000),
            end_time=round(span.ended_ms * 1_000_000),
            instrumentation_scope=SCOPE,
        )


class _Counted(SpanExporter):
    """Counts the spans that an exporter exports and refuses."""

    def __init__(self, exporter: SpanExporter) -> None:
        self._exporter = exporter
        self.exported = self.refused = 0

    @property
    def finished_count(self) -> int:
        """The number of spans that were exported or refused."""
        return self.exported + self.refused

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = SpanExportResult.FAILURE
        try:
            result = self._exporter.export(spans)
        finally:
            if result is SpanExportResult.SUCCESS:
                self.exported += len(spans)
            else:
                self.refused += len(spans)
        return result

    def shutdown(self) -> None:
        self._exporter.shutdown()


def _resource(role: str, process: str) -> Resource:
    """Returns the resource of spans from the environment, with a service name if that has none."""
    attributes: dict[str, Any] = {"service.version": __version__, "service.instance.id": process}
    if str(Resource.create().attributes[SERVICE_NAME]).startswith("unknown_service"):
        attributes[SERVICE_NAME] = f"noetl-{role}"
    return Resource.create(attributes)


def _context(trace_id: str, span_id: str) -> SpanContext:
    return SpanContext(int(trace_id, 16), int(span_id, 16), is_remote=False, trace_flags=SAMPLED)
