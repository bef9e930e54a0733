"""Checks backups, and restores one into empty stores (PROTOCOL §7 *Restore is not failover*)."""

from __future__ import annotations

import msgspec

from noetl_stream.backup.folder import SUMS
from noetl_stream.backup.names import NamedObjects, objects_of
from noetl_stream.backup.reader import BackupReader
from noetl_stream.errors import Conflict, NotReady, UsageError
from noetl_stream.ports.backup import BackupDatabase
from noetl_stream.ports.streams.blobs import Blobs
from noetl_stream.protocol.subjects import is_bundle_key


class RestoredBackup(msgspec.Struct, frozen=True, gc=False):
    """The restored backup; ``generation`` is the new one."""

    executions: int
    entries: int
    objects: int
    generation: int


def problems_of(backup: BackupReader) -> list[str]:
    """Returns the faults of a backup, a line each: files that are damaged, or do not match the manifest.

    Of a backup that nobody trusted has signed, or that is encrypted to others, only the checksums are compared.
    """
    if (damage := backup.damage()) or not backup.is_trusted or not backup.is_readable:
        return damage
    manifest, named, found = backup.manifest, NamedObjects(), []
    for table in manifest.database.tables:
        read, rows = named.reader_of(table), 0
        for piece in backup.pieces(table):
            rows += piece.count(b"\n")
            if read is not None:
                read(piece)
        if rows != manifest.rows[table.name]:
            found.append(f"table {table.name}: {rows} rows instead of {manifest.rows[table.name]}")
    keys = [key for key, _ in backup.objects()]
    if len(keys) != manifest.objects:
        found.append(f"{len(keys)} objects instead of {manifest.objects}")
    held = set(keys)
    lacking = sorted(key for key in named.keys - set(manifest.missing) if not held.issuperset(objects_of(key)))
    return found + [f"object {key}: named by a row, not in the backup" for key in lacking]


def doubt_of(backup: BackupReader) -> UsageError | None:
    """Returns the reason not to trust a backup; ``None`` if a trusted key has signed it, or any is accepted."""
    if backup.is_trusted:
        return None
    place, (key, _, fault) = backup.files.place, backup.signature
    if fault:
        return UsageError(f"{place} is damaged: {SUMS}: {fault}", hint="restore another backup")
    if key:
        hint = "if you know whose key it is, add it to NOETL_BACKUP_TRUSTED_KEYS; --unsigned accepts anybody's"
        return UsageError(f"{place} is signed with a key that is not trusted: {key}", hint=hint)
    hint = "if you know it to be yours, as one of an older release: --unsigned"
    return UsageError(f"{place} is not signed: whoever can write there may have made it", hint=hint)


async def restore_backup(backup: BackupReader, database: BackupDatabase, blobs: Blobs) -> RestoredBackup:
    """Restores a whole backup, in a new generation. No server runs, and the streams are empty.

    Objects come first, since rows name them; then all rows in one transaction. An interrupted restore can be repeated.

    Args:
        blobs: Objects as stored.

    Raises:
        Conflict: the database or the object store is not empty, or servers run.
        NotReady: the schema of the backup is unknown here, or the database has another one.
        Unreachable: a store is away.
        UsageError: the backup is damaged, encrypted to others, or not signed by a trusted key.
    """
    require_restorable(backup)
    manifest, rows = backup.manifest, {}
    async with database.target(manifest.database) as target:
        await _put_objects(backup, blobs)
        for table in manifest.database.tables:
            rows[table.name] = await target.load(table, backup.lines(table))
        if rows != manifest.rows:
            raise NotReady(f"Postgres has taken other rows than {backup.files.place} holds; nothing was restored")
        generation = await target.begin_generation(manifest.database.sequences)
    return RestoredBackup(rows["execution"], rows["event"], manifest.objects, generation)


async def restore_objects(backup: BackupReader, blobs: Blobs) -> int:
    """Adds the objects of a backup to the existing ones; returns their number. Errors: see :func:`restore_backup`."""
    require_restorable(backup)
    await _put_objects(backup, blobs)
    return backup.manifest.objects


def require_restorable(backup: BackupReader) -> None:
    """Checks a backup before a restore; raises like :func:`restore_backup`."""
    if doubt := doubt_of(backup):
        raise doubt
    if not backup.is_readable:
        hint = "set NOETL_BACKUP_IDENTITY_FILE to the file with the private key of one of them"
        raise UsageError(f"{backup.files.place} is encrypted to {', '.join(backup.manifest.recipients)}", hint=hint)
    if problems := problems_of(backup):
        more = f" and {len(problems) - 1} more problems" if len(problems) > 1 else ""
        raise UsageError(f"{backup.files.place} is damaged: {problems[0]}{more}", hint="restore another backup")


async def _put_objects(backup: BackupReader, blobs: Blobs) -> None:
    for key, data in backup.objects():
        await blobs.put(key, data)
        if await blobs.get(key) != data and not is_bundle_key(key):
            hint = "restore into streams that were just made by `noetl-stream stream ensure`"
            raise Conflict(f"the object store has another value under {key}", hint=hint)
