"""The sources of feeds: one journal by position, or all journals by the ticks of partitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Final, Protocol, TypeAlias

import msgspec

from noetl_stream.concurrency import beside
from noetl_stream.errors import NotFound, UsageError
from noetl_stream.model.envelope import EventDocument
from noetl_stream.operations.executions.reading.documents import RunWorkers, event_document, event_documents, size_of
from noetl_stream.ports.operations.reading.events import FeedEvent
from noetl_stream.ports.stores.fed_events import FedEvent, FeedStore
from noetl_stream.ports.stores.store import ExecutionRow, Store, StoredEvent
from noetl_stream.storage.used_secrets import UsedSecrets

PAGE_EVENTS: Final = 500
PAGE_TICKS: Final = 2
WHOLE_TICK: Final = 2**31
_NUMBERS: Final = "0123456789abcdefghijklmnopqrstuvwxyz"

Place: TypeAlias = tuple[int, int, int]
"""The place of an event: its order (partition), its tick or position, and its number there."""

Places: TypeAlias = Mapping[int, tuple[int, int]]
"""The place of the last event seen, in each order."""


class FeedPage(msgspec.Struct, frozen=True, gc=False):
    """Some events, and the places after them: unchanged at the end of the feed."""

    found: list[tuple[Place, FeedEvent]]
    seen: dict[int, tuple[int, int]]


class FeedSource(Protocol):
    async def read(self, seen: Places) -> FeedPage:
        """Some of the events after ``seen``, sorted in each order."""


class ExecutionSource:
    """One journal: a single order, 0, by positions."""

    def __init__(self, store: Store, workers: RunWorkers, secrets: UsedSecrets, row: ExecutionRow) -> None:
        self._store = store
        self._workers = workers
        self._secrets = secrets
        self._row = row

    async def read(self, seen: Places) -> FeedPage:
        """See :class:`FeedSource`. The last event seen is read again: it exists unless the execution was deleted.

        Raises:
            NotFound: the execution was deleted.
        """
        last, one = seen[0][0], self._row
        rows = await self._store.journal(one.execution_id, max(last, 1) - 1, PAGE_EVENTS)
        if not rows or rows[0].position != max(last, 1):
            raise NotFound(f"execution {one.execution_id} was deleted")
        workers = await self._workers.names(one.execution_id, rows)
        events = await event_documents(one, [row for row in rows if row.position > last], workers)
        shown = await self._secrets.hide(one.execution_id, events)
        found = [((0, event.position, 0), FeedEvent(str(event.position), event, one.path)) for event in shown]
        return FeedPage(found, {0: found[-1][0][1:]} if found else dict(seen))


class EverythingSource:
    """All journals: each partition is an order, by ticks."""

    def __init__(self, feed: FeedStore, workers: RunWorkers, secrets: UsedSecrets) -> None:
        self._feed = feed
        self._workers = workers
        self._secrets = secrets

    async def read(self, seen: Places) -> FeedPage:
        """See :class:`FeedSource`. A tick is complete with its last event. One seen in part is read again, without the
        seen events.

        Raises:
            UsageError: the events after ``seen`` are no longer stored.
        """
        after = {key: tick if number >= WHOLE_TICK else tick - 1 for key, (tick, number) in seen.items()}
        rows = await self._feed.read(after, PAGE_TICKS)
        floor = await self._feed.floor()
        require_kept(seen, floor.ticks)
        workers = await self._workers_of(rows)
        places = dict(seen)
        fresh: list[tuple[FedEvent, StoredEvent]] = []
        found: list[tuple[Place, str, str]] = []
        for fed, following in zip_longest(rows, rows[1:]):
            is_known = (fed.tick, fed.number) <= places[fed.partition]
            is_last = following is None or (following.partition, following.tick) != (fed.partition, fed.tick)
            if is_last or not is_known:
                places[fed.partition] = (fed.tick, WHOLE_TICK if is_last else fed.number)
            if not is_known and fed.event is not None:
                fresh.append((fed, fed.event))
                place = (fed.partition, *places[fed.partition])
                found.append((place, encode_id(places, floor.generation), fed.path))

        def documents() -> list[EventDocument]:
            by = [workers.get((fed.execution_id, event.position), "") for fed, event in fresh]
            return [
                event_document(fed.execution_id, fed.trace_id, fed.digest, event, worker)
                for (fed, event), worker in zip(fresh, by, strict=True)
            ]

        events = await beside(documents, size_of(event for _, event in fresh))
        shown = zip(found, await self._secrets.hide_each(events), strict=True)
        return FeedPage([(place, FeedEvent(id, event, path)) for (place, id, path), event in shown], places)

    async def _workers_of(self, rows: Sequence[FedEvent]) -> dict[tuple[str, int], str]:
        """The workers that reported these events, by execution and position."""
        journals: dict[str, list[StoredEvent]] = {}
        for fed in rows:
            if fed.event is not None:
                journals.setdefault(fed.execution_id, []).append(fed.event)
        return {
            (execution_id, position): worker
            for execution_id, events in journals.items()
            for position, worker in (await self._workers.names(execution_id, events)).items()
        }


def places_of(ticks: Mapping[int, int]) -> dict[int, tuple[int, int]]:
    """The places of partitions seen up to the end of these ticks."""
    return {partition: (tick, WHOLE_TICK) for partition, tick in ticks.items()}


def encode_id(places: Places, generation: int) -> str:
    """The id of the feed at these places: the generation, and the ticks of partitions 0, 1, …, partial ones with a
    number.
    """
    ticks = "-".join(_place_text(*places[partition]) for partition in sorted(places))
    return f"{_base36(generation)}:{ticks}"


def decode_id(text: str, now: Mapping[int, int], generation: int) -> dict[int, tuple[int, int]]:
    """The places that an id stands for. Ids of version 0.3 have no generation.

    Args:
        now: The last tick of each partition.

    Raises:
        UsageError: the id does not belong to this feed.
    """
    said, _, ticks = text.rpartition(":")
    try:
        places = dict(enumerate(map(_place_of, ticks.split("-"))))
    except ValueError:
        places = {}
    if places and said not in ("", _base36(generation)):
        hint = "read the missing events from the executions, and begin the feed again"
        raise UsageError("the event id is older than the last repair of the stores", hint=hint)
    if places.keys() != now.keys() or any(tick > now[key] for key, (tick, _) in places.items()):
        raise UsageError("the event id does not belong to this feed", hint="omit it to begin now")
    return places


def require_kept(places: Places, floor: Mapping[int, int]) -> None:
    """Raises :class:`~noetl_stream.errors.UsageError` if events after ``places`` are no longer stored.

    Args:
        floor: The last deleted tick of each partition.
    """
    if any(place < (floor[key], WHOLE_TICK) for key, place in places.items() if key in floor):
        hint = "read the missing events from the executions, and begin the feed again"
        raise UsageError("the event id is too old: the events after it are no longer stored", hint=hint)


def _place_text(tick: int, number: int) -> str:
    return _base36(tick) if number >= WHOLE_TICK else f"{_base36(tick)}.{_base36(number)}"


def _place_of(text: str) -> tuple[int, int]:
    tick, dot, number = text.partition(".")
    if not text.isascii() or not text.replace(".", "", 1).isalnum():
        raise ValueError(text)
    return (int(tick, 36), int(number, 36) if dot else WHOLE_TICK)


def _base36(number: int) -> str:
    digits = ""
    while True:
        number, digit = divmod(number, 36)
        digits = _NUMBERS[digit] + digits
        if not number:
            return digits
