"""Makes a backup while the system runs.

The database is read first, in one snapshot, and then the objects that its rows name. An object is stored before any row
names it, so all of them exist by then. It is deleted before its rows, but only with its execution: a missing object
belongs to a deleted execution, or was lost before. A bundle has its row first, and may be missing while it is deployed
or deleted: the next deployment stores it again.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Final

import msgspec

from noetl_stream import __version__
from noetl_stream.backup.folder import Manifest
from noetl_stream.backup.names import NamedObjects, objects_of
from noetl_stream.backup.reader import BackupReader
from noetl_stream.backup.writer import BackupWriter
from noetl_stream.errors import BlobMissing
from noetl_stream.ports.backup import BackupDatabase, DatabaseSnapshot
from noetl_stream.ports.clock import Clock
from noetl_stream.ports.files import Files
from noetl_stream.ports.streams.blobs import Blobs
from noetl_stream.sealing.data_references import head_key, parts_of
from noetl_stream.sealing.file_keys import FileKeys

OBJECTS_AT_ONCE: Final = 16


class BackupOrigin(msgspec.Struct, frozen=True):
    """The origin of a backup: its maker, as ``user@host``, and the address of the database, without a password."""

    made_by: str
    source: str


async def create_backup(
    database: BackupDatabase,
    blobs: Blobs,
    clock: Clock,
    place: Files,
    *,
    keys: FileKeys,
    origin: BackupOrigin,
    name: str | None = None,
) -> BackupReader:
    """Makes a backup in a folder below ``place``. Its name is by default the time.

    Args:
        blobs: Objects as stored.
        keys: The keys that sign and encrypt it.

    Raises:
        NotReady: the database does not have this version's schema.
        Unreachable: a store is away.
        UsageError: the place cannot be written, or has a backup of this name.
    """
    created = datetime.fromtimestamp(clock.now_ms() // 1000, UTC)
    files = place.below(name or f"{created:%Y-%m-%dT%H-%M-%SZ}")
    writer = await asyncio.to_thread(BackupWriter, files, keys)
    named = NamedObjects()
    try:
        async with database.snapshot() as snapshot:
            shape, rows = snapshot.shape, await _copy_tables(snapshot, writer, named)
        missing = await _copy_objects(blobs, writer, sorted(named.keys))
        manifest = Manifest(
            name=files.name,
            created_at=created.isoformat().replace("+00:00", "Z"),
            made_by=origin.made_by,
            source=origin.source,
            release=__version__,
            recipients=keys.recipients,
            database=shape,
            rows=rows,
            objects=writer.objects,
            object_bytes=writer.object_bytes,
            missing=missing,
        )
        await asyncio.to_thread(writer.finish, manifest)
    except BaseException:
        await asyncio.to_thread(writer.abandon)
        raise
    return BackupReader(files, keys)


async def _copy_tables(snapshot: DatabaseSnapshot, writer: BackupWriter, named: NamedObjects) -> dict[str, int]:
    rows = {}
    for table in snapshot.shape.tables:
        with writer.table(table) as write:
            rows[table.name] = await snapshot.copy(table, named.reading_rows(table, write))
    return rows


async def _copy_objects(blobs: Blobs, writer: BackupWriter, keys: list[str]) -> list[str]:
    """Copies objects into the backup; returns the keys of those that are missing, as a whole or in part."""

    async def get(key: str) -> bytes | None:
        try:
            return await blobs.get(key)
        except BlobMissing:
            return None

    missing, copied = [], set[str]()
    single = [key for key in keys if parts_of(key) is None]
    for key in sorted(set(keys) - set(single)):
        for part in objects_of(key):
            if part not in copied:
                if (data := await get(part)) is None:
                    missing.append(key)
                    break
                await asyncio.to_thread(writer.add_object, part, data)
                copied.add(part)
        head = head_key(key)  # of a table alone
        if head not in copied and (data := await get(head)) is not None:
            await asyncio.to_thread(writer.add_object, head, data)
            copied.add(head)
    for at in range(0, len(single), OBJECTS_AT_ONCE):
        chosen = single[at : at + OBJECTS_AT_ONCE]
        for key, data in zip(chosen, await asyncio.gather(*map(get, chosen)), strict=True):
            if data is None:
                missing.append(key)
            else:
                await asyncio.to_thread(writer.add_object, key, data)
    return missing
