"""The engine's database for backups: every table as text, read in one snapshot, loaded in one transaction."""

from __future__ import annotations

from collections.abc import AsyncIterable, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

import msgspec

from noetl_stream.ports.stores.retention import Month

Sink = Callable[[bytes], Coroutine[Any, Any, None]]
"""Takes the next bytes of a table: lines of Postgres's text format, cut anywhere."""


class TableShape(msgspec.Struct, frozen=True, gc=False):
    """A table of the schema and its columns, in order."""

    name: str
    columns: tuple[str, ...]


class SequencePosition(msgspec.Struct, frozen=True, gc=False):
    """The state of a sequence. ``is_called``: it has already returned ``last_value``."""

    last_value: int
    is_called: bool


class DatabaseShape(msgspec.Struct, frozen=True, gc=False):
    """The shape of a database, without its rows.

    Attributes:
        migrations: Names and checksums of the applied migrations, in order.
        generation: The highest of its partitions.
        months: The partitions of the journal. One without a ``from_id`` begins with the first.
    """

    migrations: Sequence[tuple[str, str]]
    generation: int
    tables: Sequence[TableShape]
    sequences: Mapping[str, SequencePosition]
    months: Sequence[Month]


class DatabaseSnapshot(Protocol):
    """A database as of one moment. Any method raises :class:`~noetl_stream.errors.Unreachable` when it is away."""

    shape: DatabaseShape

    async def copy(self, table: TableShape, sink: Sink) -> int:
        """Writes the rows of a table; returns their number."""


class DatabaseTarget(Protocol):
    """An empty database, in a transaction that is committed at the end of its block. Errors: as above."""

    async def load(self, table: TableShape, lines: AsyncIterable[bytes]) -> int:
        """Inserts rows written by :meth:`DatabaseSnapshot.copy`; returns their number."""

    async def begin_generation(self, sequences: Mapping[str, SequencePosition]) -> int:
        """Sets the sequences, and resets all partitions to the start of empty streams, in a new generation and without
        an owner; returns the highest generation.
        """


class BackupDatabase(Protocol):
    def snapshot(self) -> AbstractAsyncContextManager[DatabaseSnapshot]:
        """Reads the database in one transaction, which blocks nobody.

        Raises:
            NotReady: it does not have this version's schema.
        """

    def target(self, shape: DatabaseShape) -> AbstractAsyncContextManager[DatabaseTarget]:
        """Creates the schema of a backup if it is missing, and begins to load it; in the end, the schema is this
        version's.

        Raises:
            Conflict: the database is not empty, or servers use it.
            NotReady: this version does not know the schema, or the database has another one.
        """
