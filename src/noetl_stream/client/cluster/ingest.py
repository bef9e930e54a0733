"""Passing on what a worker reports that cannot reach NATS itself."""

from __future__ import annotations

from noetl_stream.errors import NotFound
from noetl_stream.model import codec
from noetl_stream.model.ids import report_id
from noetl_stream.model.messages import Report
from noetl_stream.ports.event_log import EventLog
from noetl_stream.ports.gateway import StoredReport
from noetl_stream.ports.store import Store


class DirectIngest:
    """An :class:`~noetl_stream.ports.gateway.Ingest`."""

    def __init__(self, log: EventLog, store: Store) -> None:
        self._log = log
        self._store = store

    async def report(self, report: Report) -> StoredReport:
        """See :meth:`noetl_stream.ports.gateway.Ingest.report`."""
        row = await self._store.execution(report.execution_id)
        if row is None:
            raise NotFound(f"no execution {report.execution_id}")
        message_id = report_id(report.run, report.number)
        sequence = await self._log.publish_reported(report.execution_id, message_id, codec.encode(report))
        return StoredReport(sequence, row.status)
