"""Where the spans of a role go. OpenTelemetry is imported only for a role that exports some."""

from __future__ import annotations

import logging

from noetl_stream.ports.traces import Tracing
from noetl_stream.settings.traces import TraceSettings

log = logging.getLogger(__name__)


def open_tracing(settings: TraceSettings | None, role: str, process: str) -> Tracing | None:
    """``None`` without settings, and without the SDK: other programs may share its variables.

    Raises:
        UsageError: a variable that the SDK reads is invalid.
    """
    if settings is None:
        return None
    try:
        from noetl_stream.adapters.otel import OtelTracing
    except ModuleNotFoundError as error:
        log.warning("no spans are exported: %s; install noetl-stream[otel]", error)
        return None
    return OtelTracing(settings, role, process)
