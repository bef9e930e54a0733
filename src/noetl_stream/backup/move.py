"""Moves objects from other places to the first one, while servers and workers run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import msgspec

from noetl_stream.backup.names import NamedObjects, objects_of
from noetl_stream.errors import BlobMissing
from noetl_stream.ports.backup import BackupDatabase, Sink
from noetl_stream.ports.streams.blobs import Blobs
from noetl_stream.sealing.data_references import head_key, parts_of
from noetl_stream.storage.data_parts import MISSING_IN_A_ROW

AT_ONCE: Final = 2
"""The number of objects that are moved, and held in memory, at a time."""


class MovedObjects(msgspec.Struct):
    """The result of a move.

    Attributes:
        moved, bytes: The number of moved objects, and their size. Each was copied, compared, then deleted.
        differing: The keys of objects whose content differs between the two places; both copies are kept.
    """

    moved: int = 0
    bytes: int = 0
    differing: list[str] = []


async def move(database: BackupDatabase, to: Blobs, *sources: Blobs) -> MovedObjects:
    """Moves the objects that the database refers to. An interrupted move can be repeated; it skips moved objects.

    Raises:
        NotReady: the database does not have this version's schema.
        Unreachable: a store cannot be reached.
    """
    named, found = NamedObjects(), MovedObjects()
    async with database.snapshot() as snapshot:
        for table in snapshot.shape.tables:
            if (read := named.reader_of(table)) is not None:
                await snapshot.copy(table, _sink(read))
    keys = sorted(named.keys)
    for source in sources:
        for at in range(0, len(keys), AT_ONCE):
            await asyncio.gather(*(_move_parts(key, source, to, found) for key in keys[at : at + AT_ONCE]))
    return found


def _sink(read: Callable[[bytes], None]) -> Sink:
    async def sink(piece: bytes) -> None:
        read(piece)

    return sink


async def _move_parts(key: str, source: Blobs, to: Blobs, found: MovedObjects) -> None:
    """Moves the objects of a key, with the first rows of a table. The first parts of a file may have been moved
    before. The number of parts is not trusted: any value may look like a reference.
    """
    if parts_of(key) is not None:
        await _move_object(head_key(key), source, to, found)
    absent = 0
    for part in objects_of(key):
        absent = 0 if await _move_object(part, source, to, found) else absent + 1
        if absent == MISSING_IN_A_ROW:
            if not await _has(to, part):
                break
            absent = 0


async def _move_object(key: str, source: Blobs, to: Blobs, found: MovedObjects) -> bool:
    """Moves one object; returns false if it is not in the source."""
    try:
        data = await source.get(key)
    except BlobMissing:
        return False
    await to.put(key, data)
    if await to.get(key) != data:
        found.differing.append(key)
        return True
    await source.delete(key)
    found.moved, found.bytes = found.moved + 1, found.bytes + len(data)
    return True


async def _has(blobs: Blobs, key: str) -> bool:
    try:
        await blobs.get(key)
    except BlobMissing:
        return False
    return True
