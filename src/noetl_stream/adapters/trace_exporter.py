"""Opens the exporter of a role's spans. OpenTelemetry is imported only if one exports."""

from __future__ import annotations

import logging

from noetl_stream.ports.traces import Tracing
from noetl_stream.settings.monitoring import TraceSettings

log = logging.getLogger(__name__)


def open_tracing(settings: TraceSettings | None, role: str, process: str) -> Tracing | None:
    """Opens the exporter of spans; ``None`` without settings or without the SDK: its variables may be for other
    programs.

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
