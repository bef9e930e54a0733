"""A collector: takes spans by OTLP over HTTP, as any other does, and keeps them for tests."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Status

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"


@dataclass(frozen=True)
class Seen:
    """A span as it came. Two that are the same are equal."""

    service: str
    trace_id: str
    span_id: str
    parent_id: str
    name: str
    start_ns: int
    end_ns: int
    error: str
    attributes: tuple[tuple[str, Any], ...]
    links: tuple[str, ...]

    @property
    def about(self) -> dict[str, Any]:
        return dict(self.attributes)


@dataclass
class Collector:
    """``headers`` are those of the last request."""

    url: str = ""
    spans: list[Seen] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)

    def of(self, trace_id: str) -> list[Seen]:
        return [span for span in self.spans if span.trace_id == trace_id]

    def named(self, *names: str) -> bool:
        """Whether a span of each name is here."""
        return set(names) <= {span.name for span in self.spans}

    def take(self, body: bytes) -> None:
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            about = {one.key: one.value.string_value for one in resource.resource.attributes}
            for scope in resource.scope_spans:
                self.spans += (_seen(about["service.name"], span) for span in scope.spans)


def _seen(service: str, span: Any) -> Seen:
    attributes = tuple(sorted((one.key, getattr(one.value, one.value.WhichOneof("value"))) for one in span.attributes))
    return Seen(
        service=service,
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent_id=span.parent_span_id.hex(),
        name=span.name,
        start_ns=span.start_time_unix_nano,
        end_ns=span.end_time_unix_nano,
        error=span.status.message if span.status.code == Status.STATUS_CODE_ERROR else "",
        attributes=attributes,
        links=tuple(f"{one.trace_id.hex()}-{one.span_id.hex()}" for one in span.links),
    )


@contextmanager
def collecting() -> Iterator[Collector]:
    """A collector on loopback, until the end of the block."""
    collector = Collector()

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            collector.headers = dict(self.headers)
            is_traces = self.path == "/v1/traces"
            if is_traces:
                collector.take(gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body)
            self.send_response(200 if is_traces else 404)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    collector.url = f"http://127.0.0.1:{server.server_port}"
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield collector
    finally:
        server.shutdown()
        server.server_close()
