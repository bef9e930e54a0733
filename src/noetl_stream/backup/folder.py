"""The folder of a backup, on a disk or in object storage: its files.

- ``manifest.json``: :class:`Manifest`.
- ``tables/<name>.copy.gz``: the rows of a table, in Postgres's text format.
- ``objects/<number>.tar``: objects by key, as they are stored: sealed.
- ``SHA256SUMS``: of all these files, in the format of ``sha256sum``. It is written last.
- ``SHA256SUMS.sig``: the signature of ``SHA256SUMS``, if the backup is signed (:mod:`noetl_stream.sealing.file_keys`).

If the backup is encrypted, tables and objects are files of age, with ``.age`` behind their names. An unfinished backup
also has ``UNFINISHED``, which is written first. A backup has no keys, and nothing that opens sealed data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from noetl_stream.errors import NotFound
from noetl_stream.ports.backup import DatabaseShape, TableShape
from noetl_stream.ports.files import Files

KIND: Final = "backup"
"""The kind of the signed text, in the first line of ``SHA256SUMS``."""

FORMAT: Final = 2
READABLE: Final = (1, 2)
MANIFEST: Final = "manifest.json"
SUMS: Final = "SHA256SUMS"
SIGNATURE: Final = "SHA256SUMS.sig"
UNFINISHED: Final = "UNFINISHED"
ENCRYPTED: Final = ".age"
PIECE_BYTES: Final = 1 << 20
MAX_TEXT_BYTES: Final = 256 << 20
"""The most bytes that are read of a manifest, of checksums and of their signature, which may be anybody's."""


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """The contents of a backup, and their origin.

    Attributes:
        name: The name it was created under.
        created_at: RFC 3339; the database is that of a moment after it.
        made_by: The user and the machine that made it, ``user@host``.
        source: The address of the database, without a password.
        release: The release that made the backup.
        recipients: Public keys of age to which tables and objects are encrypted; none: they are not.
        rows: The number of rows, by table.
        missing: Keys of objects that rows name and the object store did not have: they were lost before, or their
            execution was deleted while the backup was made.
    """

    format: int = FORMAT
    name: str = ""
    created_at: str
    made_by: str = ""
    source: str = ""
    release: str
    recipients: Sequence[str] = ()
    database: DatabaseShape
    rows: dict[str, int]
    objects: int
    object_bytes: int
    missing: list[str]


def table_file(table: TableShape, *, encrypted: bool) -> str:
    return f"tables/{table.name}.copy.gz{ENCRYPTED if encrypted else ''}"


def objects_file(number: int, *, encrypted: bool) -> str:
    return f"objects/{number:05}.tar{ENCRYPTED if encrypted else ''}"


def sizes_of(files: Files) -> Mapping[str, int]:
    """Returns the files of a folder with their sizes; none if it does not exist."""
    try:
        return files.sizes()
    except NotFound:
        return {}
