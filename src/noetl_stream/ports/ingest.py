"""Reports of workers that can speak HTTP only."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from noetl_stream.model.messages import Report
from noetl_stream.model.status import ExecutionStatus


class StoredReport(NamedTuple):
    """Where a report stands in EVENTS, and the status its execution had: one that has ended wants no more of them."""

    sequence: int
    status: ExecutionStatus


class Ingest(Protocol):
    async def report(self, report: Report) -> StoredReport:
        """Stores a report in EVENTS. The same report again is stored once.

        Raises:
            NotFound: there is no such execution.
            OutcomeUnknown: no acknowledgement in time; report again.
            Unreachable: not connected.
        """
        ...
