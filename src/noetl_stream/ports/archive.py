"""Executions that were archived before they were deleted: what operations showed of them, without their secrets."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from noetl_stream.model.envelope import EventDocument
from noetl_stream.ports.operations.executions import ExecutionDocument, ListedExecutionDocument, ResultDocument


class ArchiveBatch(Protocol):
    """Executions that are archived together; nothing of it is in the archive before :meth:`finish`."""

    def add_events(self, events: Sequence[EventDocument]) -> None:
        """Adds the next events of an execution."""

    def add(self, listed: ListedExecutionDocument, document: ExecutionDocument, result: ResultDocument) -> None:
        """Adds an execution; its events are complete."""

    def finish(self) -> None:
        """Writes, syncs and reads back what was added. Blocks."""

    def abandon(self) -> None:
        """Removes what was written so far."""


class ArchiveFiles(Protocol):
    """Any method raises :class:`~noetl_stream.errors.UsageError` when a file cannot be read or written, and blocks."""

    def positions(self, execution_ids: Collection[str]) -> Mapping[str, int]:
        """The archived ones of these executions, with their last position."""

    def begin(self) -> ArchiveBatch: ...
