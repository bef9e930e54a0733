"""The events in what a tick adds to journals, as readers of them see it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from noetl_stream.ports.stores.store import EntryRow, StoredEntry, Tick
from noetl_stream.storage.journal import events_of


def events_in(tick: Tick) -> list[tuple[str, str]]:
    """The execution and the name of each event that a tick adds."""
    return [
        (row.execution_id, event.name) for row in tick.entries for event in events_of(row.execution_id, [stored(row)])
    ]


def names_in(tick: Tick) -> list[str]:
    """The names of the events that a tick adds."""
    return [name for _, name in events_in(tick)]


def stored(row: EntryRow) -> StoredEntry:
    """A row as it is read again."""
    values: dict[str, Any] = {name: getattr(row, name, None) for name in StoredEntry.__struct_fields__}
    return StoredEntry(**values)


def names_of(execution_id: str, rows: Iterable[EntryRow]) -> Iterator[str]:
    """The names of the events of these rows."""
    return (event.name for event in events_of(execution_id, map(stored, rows)))
