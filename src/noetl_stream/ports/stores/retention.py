"""The data that servers read, archive and delete so that the stores do not grow for ever (PROTOCOL §5 *Retention*)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import msgspec

from noetl_stream.model.status import ExecutionStatus

if TYPE_CHECKING:  # servers know no documents
    from noetl_stream.model.envelope import EventDocument
    from noetl_stream.ports.operations.executions import ExecutionDocument, ListedExecutionDocument, ResultDocument


class LivingExecution(msgspec.Struct, frozen=True, gc=False):
    """An unfinished execution; ``journal_bytes`` is the approximate size of its journal."""

    execution_id: str
    partition: int
    journal_bytes: int


class StartedExecution(msgspec.Struct, frozen=True, gc=False):
    """An execution with the facts that rules of retention use."""

    execution_id: str
    path: str
    status: ExecutionStatus
    finished_ms: int | None


class Month(msgspec.Struct, frozen=True, gc=False):
    """A partition of the journal: the executions with ids from ``from_id`` on and below ``to_id``."""

    name: str
    from_id: str
    to_id: str


class RetentionStore(Protocol):
    """Any method raises :class:`~noetl_stream.errors.Unreachable` when the database is away."""

    async def living_since(self, started_ms: int) -> list[LivingExecution]:
        """The unfinished executions that started at this time or earlier, by id."""

    async def lived_between(self, from_ms: int, to_ms: int) -> dict[str, int]:
        """The partitions of the executions that lived at any time between these, by execution."""

    async def started_between(self, after: str, before: str, limit: int) -> list[StartedExecution]:
        """The first executions above the id ``after`` and below ``before``, by id, which begins with the time."""

    async def journal_bytes(self, execution_ids: Sequence[str]) -> int:
        """The approximate size of the journals of these executions together."""

    async def months(self) -> list[Month]:
        """The partitions of the journal, oldest first."""

    async def make_months(self, ahead: int) -> list[str]:
        """Creates the missing partitions of this month and ``ahead`` more; returns the new ones."""

    async def drop_empty_months(self) -> list[str]:
        """Drops the partitions of past months without executions, with their contents; returns them."""


class Archiver(Protocol):
    async def keep(self, execution_ids: Sequence[str]) -> set[str]:
        """Archives these ended executions; returns those that are then in the archive, synced and read back.

        Raises:
            Unreachable: a store is away.
            UsageError: the archive cannot be written.
        """


class ArchiveBatch(Protocol):
    """Executions archived together, as shown, without their secrets; none is in the archive before :meth:`finish`."""

    def add_events(self, events: Sequence[EventDocument]) -> None:
        """Adds the next events of an execution."""

    def add(self, listed: ListedExecutionDocument, document: ExecutionDocument, result: ResultDocument) -> None:
        """Adds an execution; its events are complete."""

    def finish(self) -> None:
        """Writes, syncs and reads back the added executions. Blocks."""

    def abandon(self) -> None:
        """Removes everything written so far."""


class ArchiveFiles(Protocol):
    """Any method raises :class:`~noetl_stream.errors.UsageError` when a file cannot be read or written, and blocks."""

    def positions(self, execution_ids: Collection[str]) -> Mapping[str, int]:
        """The archived ones of these executions, with their last position."""

    def begin(self) -> ArchiveBatch: ...
