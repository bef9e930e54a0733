"""Events of stored entries: an entry that a store keeps as one row is read as the events in it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Iterable, Iterator
from typing import Final

from noetl_stream.model.events import NAMES, Fact
from noetl_stream.model.events.composite import expand
from noetl_stream.model.events.journal_reader import Recorded
from noetl_stream.model.ids import run_of_report
from noetl_stream.model.json import codec
from noetl_stream.ports.stores.store import EntryRow, Store, StoredEntry, StoredEvent

EVENTS_AT_ONCE: Final = 500
"""The events of a long journal that are read at once, so that it does not block others."""


FIRST_READ: Final = 50
"""The events that are read at first, while their size is unknown."""

MOST_READ: Final = 200
"""The most events that are read at once: even if all have the largest size, these are some 13 MB."""

READ_BYTES: Final = 512 * 1024
"""The approximate bytes of a journal that are read at once."""


def next_count(count: int, size: int) -> int:
    """The entries or events to read next, when the last ``count`` had ``size`` bytes: others may be larger."""
    return max(1, min(MOST_READ, 2 * count, count * READ_BYTES // max(1, size)))


async def pieces(store: Store, execution_id: str, after: int = 0) -> AsyncIterator[list[StoredEvent]]:
    """The journal above a position, at most :data:`EVENTS_AT_ONCE` events at a time, yielding in between."""
    while piece := await store.journal(execution_id, after, EVENTS_AT_ONCE):
        await asyncio.sleep(0)  # reading a piece, and its use, each take a turn of the loop
        yield piece
        after = piece[-1].position
        await asyncio.sleep(0)


def events_of(execution_id: str, entries: Iterable[StoredEntry]) -> Iterator[StoredEvent]:
    """The events of entries of one execution's journal, in order."""
    for entry in entries:
        if entry.name is None:
            yield from _events(execution_id, entry)
        else:
            yield StoredEvent(**{name: getattr(entry, name) for name in StoredEvent.__struct_fields__})


def facts_of(entry: StoredEntry | EntryRow) -> Iterator[Recorded]:
    """The facts of an entry, composite ones undivided."""
    command_id = run_of_report(entry.report_id).command_id if entry.report_id and entry.number is not None else ""
    position = entry.position
    if isinstance(entry, StoredEntry) and entry.name is not None:
        yield Recorded(codec.decode_fact(entry.data), position, entry.at_ms, entry.step_run_id, command_id)
        return
    for fact, _ in codec.decode_facts(entry.data):
        yield Recorded(fact, position, entry.at_ms, entry.step_run_id, command_id)
        position += fact.width
    for fact, _ in codec.decode_facts(entry.decisions) if entry.decisions is not None else ():
        yield Recorded(fact, position, entry.at_ms, None, "")
        position += fact.width


def fact_of(event: StoredEvent, command_id: str = "") -> Recorded:
    """The fact of an event, with the command that reported it."""
    return Recorded(codec.decode_fact(event.data), event.position, event.at_ms, event.step_run_id, command_id)


def page_of(
    execution_id: str,
    entries: Iterable[StoredEntry],
    after: int = 0,
    limit: int | None = None,
    names: Collection[str] | None = None,
) -> list[StoredEvent]:
    """The first ``limit`` of these events that are after a position, and have one of these names.

    Args:
        entries: Entries from the one with the first such event on.
    """
    found: list[StoredEvent] = []
    for event in events_of(execution_id, entries):
        if event.position > after and (names is None or event.name in names):
            found.append(event)
            if len(found) == limit:
                break
    return found


def facts_about(execution_id: str, entry: StoredEntry, step_run_id: str) -> Iterator[Fact]:
    """The facts of an entry about a step run, composite ones as their parts."""
    if entry.name is not None:
        if entry.step_run_id == step_run_id:
            yield codec.decode_fact(entry.data)
        return
    for facts, reported in ((entry.data, entry.step_run_id), (entry.decisions, None)):
        for fact, _ in codec.decode_facts(facts) if facts is not None else ():
            for part in expand(execution_id, fact):
                if (reported or getattr(part, "step_run_id", None)) == step_run_id:
                    yield part


def last_position(execution_id: str, entry: StoredEntry) -> int:
    """The position of the last event of an entry."""
    return max(event.position for event in events_of(execution_id, (entry,)))


def _events(execution_id: str, entry: StoredEntry) -> Iterator[StoredEvent]:
    position, number, cause = entry.position, entry.number, entry.position
    for fact, data in _parts(execution_id, entry.data):
        step_run_id = entry.step_run_id or getattr(fact, "step_run_id", None)
        yield StoredEvent(
            position=position,
            name=NAMES[type(fact)],
            source=entry.source,
            at_ms=entry.at_ms,
            step_run_id=step_run_id,
            report_id=entry.report_id,
            number=number,
            data=data,
        )
        cause, position = position, position + 1
        number = None if number is None else number + 1
    for fact, data in () if entry.decisions is None else _parts(execution_id, entry.decisions):
        yield StoredEvent(
            position=position,
            name=NAMES[type(fact)],
            source="server",
            at_ms=entry.at_ms,
            step_run_id=getattr(fact, "step_run_id", None),
            report_id=None,
            number=None,
            data=data,
            cause=cause,
        )
        position += 1


def _parts(execution_id: str, facts: bytes) -> Iterator[tuple[Fact, bytes]]:
    """The facts of this array with their bytes, composite ones as their parts."""
    for fact, raw in codec.decode_facts(facts):
        parts = expand(execution_id, fact)
        if len(parts) == 1:
            yield fact, bytes(raw)
        else:
            for part in parts:
                yield part, codec.encode(part)
