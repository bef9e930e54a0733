"""Journals of executions on EVENTS: their entries as messages (PROTOCOL §1 *Journal*), and the repair of lost ones.

EVENTS may lose messages that were folded; this module finds the cursors from which to read again (PROTOCOL §5).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple, cast

import msgspec

from noetl_stream.errors import Conflict, PayloadRefused, StreamLost
from noetl_stream.model.events import Source
from noetl_stream.model.ids import partition_count
from noetl_stream.model.json import codec
from noetl_stream.model.messages import FORMAT, NOTHING, FullEntry, JournalRecord, RecordEntry
from noetl_stream.ports.stores.cursors import Cursor, Cursors, Repair
from noetl_stream.ports.stores.store import PartitionLease, PartitionView, Store, StoredEntry
from noetl_stream.ports.streams.event_log import DecidedMessage, EventLog
from noetl_stream.protocol.log_fences import FencePlace, is_late

log = logging.getLogger(__name__)

MAX_RECORD_BYTES: Final = 512 * 1024
"""The size above which journal records are split; a single entry may be larger, up to a few limits of an execution."""

ENTRY_BYTES: Final = 1024
"""More bytes than a record has for an entry, without its facts and decisions."""

Part = tuple[int, RecordEntry]
"""A journal entry, or a part of one, with its position."""


class Stamp(msgspec.Struct, frozen=True, gc=False):
    """The tick that records are published for, and their format.

    ``again``: the records were published before, or by an owner that ended before it could.
    """

    partition: int
    tick: int
    epoch: int
    owner: str
    format: int = FORMAT
    again: bool = False


def parts_of(position: int, entry: RecordEntry, decided_at: int) -> Sequence[Part]:
    """Returns the entry, in parts if its decisions, which begin at ``decided_at``, are too many for one record."""
    if len(entry.decisions) <= MAX_RECORD_BYTES:
        return ((position, entry),)
    parts = [(position, msgspec.structs.replace(entry, decisions=NOTHING))]
    for width, piece in _cut_facts(bytes(entry.decisions)):
        parts.append((decided_at, RecordEntry("", 0, 0, piece)))
        decided_at += width
    return parts


def in_full(row: StoredEntry) -> Iterator[Part]:
    """Yields a stored entry with its input in full, which EVENTS may have lost."""
    data = row.data if row.name is None else codec.encode_facts([row.data])
    facts = [fact for fact, _ in codec.decode_facts(data)]
    if row.cause is not None:  # a decision with a row of its own, in format 1
        yield row.position, RecordEntry("", 0, 0, msgspec.Raw(data))
        return
    entry = FullEntry(
        report_id=row.report_id or "",
        index=0,
        count=len(facts),
        decisions=msgspec.Raw(row.decisions) if row.decisions is not None else NOTHING,
        facts=msgspec.Raw(data),
        at_ms=row.at_ms,
        source=cast(Source, row.source),
        step_run_id=row.step_run_id or "",
        number=row.number or 0,
    )
    yield from parts_of(row.position, entry, row.position + sum(fact.width for fact in facts))


def messages_of(execution_id: str, parts: Sequence[Part], through: int, stamp: Stamp) -> list[DecidedMessage]:
    """Returns the records of one execution for one tick, split where they would grow too large."""
    return [_message(execution_id, *piece, through, stamp) for piece in _pieces(parts)]


def _message(execution_id: str, first: int, entries: list[Any], through: int, stamp: Stamp) -> DecidedMessage:
    # An owner may publish a tick again with entries committed since: the content differs.
    ending = f".{len(entries)}.{through}.again" if stamp.again else ""
    record = JournalRecord(
        execution=execution_id,
        first_position=first,
        entries=entries,
        through=through,
        partition=stamp.partition,
        tick=stamp.tick,
        epoch=stamp.epoch,
        format=stamp.format,
    )
    identity = f"{stamp.partition}.{stamp.tick}.{stamp.epoch}.{stamp.owner}.{execution_id}.{first}{ending}"
    return DecidedMessage(stamp.partition, execution_id, identity, codec.encode(record))


def _pieces(parts: Sequence[Part]) -> Sequence[tuple[int, list[Any]]]:
    """Distributes entries over records, each with the position of its first entry. Small ones are encoded with it."""
    size = sum([ENTRY_BYTES + len(entry.decisions) + len(entry.facts) for _, entry in parts])
    return [(parts[0][0], [entry for _, entry in parts])] if 0 < size <= MAX_RECORD_BYTES else _cut(parts)


def epoch_in(message_id: str) -> int:
    """Returns the epoch in the id of a record, by :func:`messages_of`; 0 for any other id."""
    parts = message_id.split(".")
    return int(parts[2]) if len(parts) > 2 and parts[2].isdecimal() else 0


def _cut(parts: Iterable[Part]) -> list[tuple[int, list[msgspec.Raw]]]:
    """Distributes entries over records, each with the position of its first entry."""
    pieces: list[tuple[int, list[msgspec.Raw]]] = []
    size = 0
    for position, entry in parts:
        encoded = codec.encode(entry)
        if not pieces or size + len(encoded) > MAX_RECORD_BYTES:
            pieces.append((position, []))
            size = 0
        pieces[-1][1].append(msgspec.Raw(encoded))
        size += len(encoded)
    return pieces


def _cut_facts(facts: bytes) -> list[tuple[int, msgspec.Raw]]:
    """Splits an array of facts into several, each with the number of its positions."""
    pieces: list[tuple[int, list[bytes]]] = []
    size = 0
    for fact, raw in codec.decode_facts(facts):
        if not pieces or size + len(raw) > MAX_RECORD_BYTES:
            pieces.append((0, []))
            size = 0
        width, piece = pieces[-1]
        piece.append(bytes(raw))
        pieces[-1] = (width + fact.width, piece)
        size += len(raw)
    return [(width, msgspec.Raw(codec.encode_facts(piece))) for width, piece in pieces]


def read_record(body: bytes) -> JournalRecord | None:
    """Decodes a journal record; ``None`` for an unreadable one, which no owner wrote and which must stop none."""
    try:
        return codec.decode_record(body)
    except PayloadRefused as refused:
        log.warning("a journal record in EVENTS is passed over: %s", refused)
        return None


MARGIN_MS: Final = 60_000
"""The largest difference between the clocks of two leaders of the stream, in milliseconds."""

FIRST_PIECE: Final = 64
"""The number of messages in the first backward search from a record that does not count."""


class StreamExtent(NamedTuple):
    """The first and last sequence in EVENTS."""

    first: int
    last: int

    @classmethod
    async def of(cls, log: EventLog) -> StreamExtent:
        first = await log.first_sequence()  # in this order: a message stored in between must not look like a loss
        return cls(first, await log.last_sequence())

    async def still_holds(self, log: EventLog, last_seq: int, last_ms: int) -> bool:
        """Returns whether the message at a cursor is the folded one, and none after it is lost."""
        if last_seq > self.last or self.first > last_seq + 1:
            return False
        found = await log.stored_at(last_seq) if last_seq >= self.first else None
        return found is None or not last_ms or found == last_ms


async def lost_cursors(log: EventLog, cursors: Iterable[Cursor], extent: StreamExtent) -> list[Cursor]:
    """Returns the cursors whose messages EVENTS no longer holds.

    Raises:
        NotReady: the stream does not exist.
        Unreachable: a store is away.
    """
    places = dict.fromkeys(_place(cursor) for cursor in cursors if cursor.last_seq)
    held = await asyncio.gather(*(extent.still_holds(log, *place) for place in places))
    lost = {place for place, is_held in zip(places, held, strict=True) if not is_held}
    return [cursor for cursor in cursors if _place(cursor) in lost]


def _place(cursor: Cursor) -> tuple[int, int]:
    return cursor.last_seq, cursor.last_ms


async def repairs_of(log: EventLog, lost: Sequence[Cursor], extent: StreamExtent) -> list[Repair]:
    """Returns, for each lost cursor, the last message that its partition has certainly folded, and the records that may
    be lost with those above it. Records published at once are stored in any order: a tick is certainly recorded if it
    or a later one has a record stored a minute before anything that may be lost. Errors: as for :func:`lost_cursors`.
    """
    kept: dict[tuple[int, int], tuple[int, int, int]] = {}
    for cursor in lost:
        place = (cursor.last_seq, cursor.last_ms)
        if place not in kept:
            high, before_ms = min(extent.last, cursor.last_seq), cursor.last_ms - MARGIN_MS
            last_seq, last_ms = await newest_before(log, extent.first, high, before_ms)
            next_ms = await log.stored_at(last_seq + 1)
            held_ms = next_ms if next_ms is not None and next_ms <= cursor.last_ms else last_ms
            recorded_through, _ = await newest_before(log, extent.first, last_seq, held_ms - MARGIN_MS)
            kept[place] = last_seq, last_ms, recorded_through

    async def repair(cursor: Cursor) -> Repair:
        last_seq, last_ms, recorded_through = kept[cursor.last_seq, cursor.last_ms]
        recorded = await _last_record_through(log, cursor.partition, recorded_through)
        published_tick = min(cursor.published_tick, recorded.tick if recorded is not None else 0)
        return Repair(cursor.partition, cursor.last_seq, last_seq, last_ms, published_tick)

    return await asyncio.gather(*map(repair, lost))


async def refuse_stream_of_others(log: EventLog, store: Store) -> None:
    """Checks that EVENTS belongs to this Postgres.

    Raises:
        StreamLost: EVENTS has journal records, and the newest of each partition are all of executions unknown to this
            Postgres. A new stream has none.
    """
    records = await asyncio.gather(*(last_record(log, partition) for partition in range(partition_count())))
    known = dict.fromkeys(record.execution for record in records if record is not None)
    if known and not await store.executions(known):
        raise StreamLost(
            "EVENTS is not the stream that was folded: it holds records of executions that this Postgres does not know",
            hint="point NOETL_NATS_URL at the NATS this Postgres belongs to; if it does belong to this one, stop the "
            "servers, run `noetl-stream stream reconcile` and start them again",
        )


async def refuse_records_of_others(log: EventLog, leases: Iterable[PartitionLease]) -> None:
    """Checks that EVENTS has no records of partitions in which this Postgres has never committed anything.

    Raises:
        StreamLost: EVENTS has records of a partition whose first epoch this is.
    """
    new = [lease.id for lease in leases if lease.epoch == 1 and not lease.tick]
    records = await asyncio.gather(*(log.last_decided(partition) for partition in new))
    foreign = [partition for partition, record in zip(new, records, strict=True) if record is not None]
    if foreign:
        raise StreamLost(
            f"EVENTS belongs to another Postgres: it holds records of {len(foreign)} partitions that no server has had "
            "by this one",
            hint="point NOETL_NATS_URL at the NATS this Postgres belongs to; if this Postgres is new in the place of a "
            "lost one, run `noetl-stream database rebuild`",
        )


async def reconcile_cursors(log: EventLog, cursors: Cursors) -> list[Repair]:
    """Repairs all partitions whose cursor EVENTS no longer holds, even if the stream belongs to another database.

    Returns:
        The repairs that were made.

    Raises:
        Conflict: a server owns one of their partitions.
        NotReady: the stream does not exist.
        Unreachable: a store is away.
    """
    extent = await StreamExtent.of(log)
    await accept_head(extent, cursors)
    repairs = await repairs_of(log, await lost_cursors(log, await cursors.all(), extent), extent)
    repaired = await cursors.repair(repairs)
    if len(repaired) < len(repairs):
        owned = ", ".join(str(one.partition) for one in repairs if one.partition not in repaired)
        raise Conflict(f"servers own partitions that have lost messages: {owned}", hint="stop the servers and repeat")
    return repairs


async def behind_events(
    log: EventLog, store: Store, partitions: Collection[int] | None = None
) -> list[tuple[PartitionView, int]]:
    """Returns the partitions, by default among all, for which EVENTS holds a record of a tick that Postgres has not
    committed, each with that tick. Servers may run meanwhile. Errors: as for :func:`last_record`.
    """
    partitions = range(partition_count()) if partitions is None else partitions
    # A record is published after its commit, so Postgres must have at least the ticks of records read before it.
    records = await asyncio.gather(*(last_record(log, partition) for partition in partitions))
    ticks = {id: record.tick for id, record in zip(partitions, records, strict=True) if record is not None}
    return [(view, ticks[view.id]) for view in await store.read_partitions(ticks) if ticks[view.id] > view.tick]


async def last_record(log: EventLog, partition: int) -> JournalRecord | None:
    """Returns the newest journal record of the partition that is readable and not late."""
    last, fences = await asyncio.gather(log.last_decided(partition), log.fences(partition))
    return await _newest_from(log, partition, last, fences)


async def _last_record_through(log: EventLog, partition: int, last: int) -> JournalRecord | None:
    """Returns the newest such record at or below the sequence ``last``."""
    low, high = 1, last
    newest: tuple[int, bytes] | None = None
    while low <= high:
        middle = (low + high + 1) // 2
        found = await log.next_decided(partition, middle - 1)
        if found is not None and found[0] <= last:
            newest, low = found, found[0] + 1
        else:
            high = middle - 1
    return await _newest_from(log, partition, newest, await log.fences(partition))


async def _newest_from(
    log: EventLog, partition: int, newest: tuple[int, bytes] | None, fences: Collection[FencePlace]
) -> JournalRecord | None:
    """Returns this record if it counts; else the newest before it, searched in ever longer pieces of the stream."""
    record = _counted(*newest, fences) if newest is not None else None
    last, piece = newest[0] - 1 if newest is not None else 0, FIRST_PIECE
    while record is None and last > 0:
        sequence = first = max(0, last - piece)
        while (found := await log.next_decided(partition, sequence)) is not None and found[0] <= last:
            sequence = found[0]
            record = _counted(*found, fences) or record
        last, piece = first, 2 * piece
    return record


def _counted(sequence: int, body: bytes, fences: Collection[FencePlace]) -> JournalRecord | None:
    """Returns a record that is readable and not late."""
    record = read_record(body)
    return None if record is None or is_late(fences, record.epoch, sequence) else record


async def accept_head(extent: StreamExtent, cursors: Cursors) -> None:
    """Treats messages missing at the stream's head as trimmed: they cannot be restored."""
    floor = await cursors.floor()
    if extent.first > floor + 1 or extent.last < floor:
        await cursors.move_floor(floor, max(0, extent.first - 1))


async def newest_before(log: EventLog, first: int, last: int, before_ms: int) -> tuple[int, int]:
    """Returns sequence and stored time of the newest message from ``first`` to ``last`` that was stored before
    ``before_ms``; if there is none, the sequence before ``first``, and 0. Stored times grow with sequences, give or
    take :data:`MARGIN_MS`.
    """
    low, low_ms = max(0, first - 1), 0
    high = last
    while low < high:
        middle = (low + high + 1) // 2
        at_ms = await log.stored_at(middle)
        if at_ms is not None and at_ms < before_ms:
            low, low_ms = middle, at_ms
        else:
            high = middle - 1
    return low, low_ms


STUCK_SHOWN: Final = 20


async def disagreements(log: EventLog, store: Store, cursors: Cursors) -> list[str]:
    """Returns the disagreements between Postgres and EVENTS, a line each. Servers may run meanwhile.

    Raises:
        NotReady: the stream does not exist.
        Unreachable: a store is away.
    """
    found = [
        f"partition {view.id}: Postgres has committed {view.tick} ticks, and EVENTS holds a record of tick {tick}: "
        "Postgres was restored from an older state, or failed over without its last commits"
        for view, tick in await behind_events(log, store)
    ]
    folded = await cursors.all()
    extent = await StreamExtent.of(log)  # after the cursors: what is folded in between is in it
    for cursor in await lost_cursors(log, folded, extent):
        held = f"EVENTS holds {extent.first} to {extent.last}"
        text = f"partition {cursor.partition}: message {cursor.last_seq}, the last that was folded, is lost ({held})"
        found.append(f"{text}: stop the servers and run `noetl-stream stream reconcile`")
    found += await _lost_head(extent, cursors)
    stuck = await store.stuck(STUCK_SHOWN)
    return found + [f"execution {execution_id}: waits for nothing, a defect of the engine" for execution_id in stuck]


async def _lost_head(extent: StreamExtent, cursors: Cursors) -> list[str]:
    floor = await cursors.floor()
    if extent.last < floor:
        text = f"EVENTS ends at {extent.last}, and servers have trimmed it up to {floor}: it is a different stream"
    elif extent.first > floor + 1:
        text = f"EVENTS begins at {extent.first}, and servers have trimmed it up to {floor}: others have purged it"
    else:
        return []
    return [f"{text}: stop the servers and run `noetl-stream stream reconcile`"]
