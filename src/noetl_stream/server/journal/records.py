"""Journal records: entries of a journal as messages of EVENTS (PROTOCOL §1 *Journal*)."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from typing import Final, cast

import msgspec

from noetl_stream.errors import PayloadRefused
from noetl_stream.model.events import Source
from noetl_stream.model.json import codec
from noetl_stream.model.messages import FORMAT, NOTHING, FullEntry, JournalRecord, RecordEntry
from noetl_stream.ports.stores.store import StoredEntry
from noetl_stream.ports.streams.event_log import DecidedMessage

log = logging.getLogger(__name__)

MAX_RECORD_BYTES: Final = 512 * 1024
"""The size above which journal records are split; a single entry may be larger, up to a few limits of an execution."""

Part = tuple[int, RecordEntry]
"""A journal entry, or a part of one, with its position."""


class Stamp(msgspec.Struct, frozen=True, gc=False):
    """The tick that records are published for, and their format.

    ``again``: the records were published before, or by an owner that ended before it did.
    """

    partition: int
    tick: int
    epoch: int
    owner: str
    format: int = FORMAT
    again: bool = False


def parts_of(position: int, entry: RecordEntry, decided_at: int) -> Iterator[Part]:
    """Yields the entry, in several parts if its decisions, the first at ``decided_at``, are too many for one record."""
    if len(entry.decisions) <= MAX_RECORD_BYTES:
        yield position, entry
        return
    yield position, msgspec.structs.replace(entry, decisions=NOTHING)
    for width, piece in _cut_facts(bytes(entry.decisions)):
        yield decided_at, RecordEntry("", 0, 0, piece)
        decided_at += width


def in_full(row: StoredEntry) -> Iterator[Part]:
    """Yields a stored entry with its input in full, which EVENTS may have lost."""
    data = row.data if row.name is None else codec.encode_facts([row.data])
    facts = [fact for fact, _ in codec.decode_facts(data)]
    if row.cause is not None:  # a decision that has a row of its own, in format 1
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


def messages_of(execution_id: str, parts: Iterable[Part], through: int, stamp: Stamp) -> Iterator[DecidedMessage]:
    """Yields the records of one execution for one tick, split where they would grow too large."""
    for first, entries in _cut(parts):
        # An owner may publish a tick again more than once, with what was committed since: the content differs.
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
        yield DecidedMessage(stamp.partition, execution_id, identity, codec.encode(record))


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
    """Splits an array of facts into several, each with the number of positions that it takes."""
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
    """Decodes a journal record; ``None`` if it cannot be read: no owner wrote it, and it must stop none."""
    try:
        return codec.decode_record(body)
    except PayloadRefused as refused:
        log.warning("a journal record in EVENTS is passed over: %s", refused)
        return None
