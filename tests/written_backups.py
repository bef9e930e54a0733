"""Backups that are written without a database: of a few tables, with rows as a test wants them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from noetl_stream.adapters.files.folder import FolderFiles
from noetl_stream.backup.folder import Manifest
from noetl_stream.backup.reader import BackupReader
from noetl_stream.backup.writer import BackupWriter
from noetl_stream.ports.backup import DatabaseShape, TableShape
from noetl_stream.sealing.file_keys import FileKeys

TABLES: Mapping[str, tuple[str, ...]] = {
    "execution": ("id",),
    "event": ("execution_id", "body"),
    "api_token": ("name", "role", "paths", "created_by", "expires_ms", "revoked_ms"),
    "browser_session": ("token_id",),
    "credential": ("name", "kind"),
    "aggregate": ("kind", "key", "state"),
    "catalog": ("path", "revision"),
    "grant_revision": ("revision", "source", "registered_ms", "registered_by"),
}
SHAPES = [TableShape(name, columns) for name, columns in TABLES.items()]


async def write_backup(
    place: Path, keys: FileKeys, rows: Mapping[str, list[str]], name: str = "nightly"
) -> BackupReader:
    """Writes a backup with these rows of tables, each as Postgres writes it, and one object."""
    writer = BackupWriter(FolderFiles(place / name), keys)
    for shape in SHAPES:
        with writer.table(shape) as sink:
            await sink("".join(f"{row}\n" for row in rows.get(shape.name, [])).encode())
    writer.add_object("x/1", b"sealed")
    writer.finish(
        Manifest(
            name=name,
            created_at="2026-11-29T02:17:00Z",
            made_by="ann@host",
            source="postgresql://db.example/noetl",
            release="0.4.0",
            recipients=keys.recipients,
            database=DatabaseShape([("0034_limit_slot", "")], 3, SHAPES, {}, []),
            rows={shape.name: len(rows.get(shape.name, [])) for shape in SHAPES},
            objects=writer.objects,
            object_bytes=writer.object_bytes,
            missing=[],
        )
    )
    return BackupReader(writer.files, keys)


def sum_again(folder: Path) -> None:
    """Writes checksums of the files as they are now, as anybody can."""

    files = [
        path for path in sorted(folder.rglob("*")) if path.is_file() and path.name.partition(".")[0] != "SHA256SUMS"
    ]
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(folder)}\n" for path in files]
    head = (folder / "SHA256SUMS").read_text().partition("\n")[0]
    first = f"{head}\n" if head.startswith("#") else ""
    (folder / "SHA256SUMS").write_text(first + "".join(lines))
