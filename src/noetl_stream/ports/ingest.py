"""Reports from workers that only speak HTTP."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from noetl_stream.model.messages import Report
from noetl_stream.model.status import ExecutionStatus


class StoredReport(NamedTuple):
    """A report's sequence in EVENTS, and the status of its execution: an ended one needs no more reports."""

    sequence: int
    status: ExecutionStatus


class Ingest(Protocol):
    async def report(self, report: Report) -> StoredReport:
        """Stores a report in EVENTS. A repeated report is stored once.

        Raises:
            NotFound: the execution does not exist.
            OutcomeUnknown: no acknowledgement in time; report again.
            Unreachable: not connected.
        """
        ...
