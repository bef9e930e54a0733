"""A Postgres cluster with the schema of this version, packed when a release is built: ``cluster-*.bin`` in this folder.

Unpacking it takes a sixth of the time of ``initdb``, the databases and the migrations. It fits only the Postgres and
the system that made it, and only as long as the files that decide its contents are unchanged; without it a cluster is
created from scratch. ADR 32.

An archive is a line of JSON, its index, and one zlib stream of all contents, each once: databases share most of theirs.
"""

from __future__ import annotations

import hashlib
import os
import struct
import sys
import zlib
from collections.abc import Iterable
from itertools import accumulate
from pathlib import Path
from typing import Final, Self

import msgspec

from noetl_stream.errors import LocalStackError
from noetl_stream.local.home import PRIVATE_FILE_MODE, PRIVATE_FOLDER_MODE
from noetl_stream.local.processes import SystemUser

PACKAGE: Final = Path(__file__).parents[1]
FOLDER: Final = Path(__file__).parent
NOT_PACKED: Final = ("postmaster.opts", "pg_internal.init", "_fsm", "_vm")
"""The suffixes of names that are not packed: the last start's options and caches, and the maps of free space and of
visibility, a third of all files. Postgres recreates them.
"""

_CONTROL_FILE: Final = "global/pg_control"
_LOG_FOLDER: Final = "pg_wal"
_LOG_HEADER: Final = 24
"""The bytes of a log page before the system identifier, which the first page of each segment has."""
_CASTAGNOLI: Final = 0x82F63B78
_MAX_CONTROL_BYTES: Final = 512
"""Postgres keeps the control file below a sector, so that it is written whole."""


class Content(msgspec.Struct, frozen=True):
    """The content of a file: its first bytes, and its length with the zeros that follow them."""

    stored: int
    size: int


class Index(msgspec.Struct, frozen=True):
    """The index of an archive.

    Attributes:
        made_from: The SHA-256 of the files that decide the contents, by file of this package.
        folders: The folders, parents first.
        files: The number of its content, by path.
    """

    made_from: dict[str, str]
    folders: list[str]
    files: dict[str, int]
    contents: list[Content]


class ClusterArchive(msgspec.Struct, frozen=True):
    """An archive that is read, with its contents still packed."""

    index: Index
    packed: bytes

    @classmethod
    def find(cls, version: str) -> Self | None:
        """Finds the archive for this Postgres, as in ``18.6``, and this system; ``None`` if none fits."""
        try:
            head, _, packed = archive_path(version).read_bytes().partition(b"\n")
            index = msgspec.json.decode(head, type=Index)
        except (FileNotFoundError, msgspec.MsgspecError):
            return None
        return cls(index, packed) if index.made_from == _digests(index.made_from) else None

    def unpack(self, folder: Path, user: SystemUser | None) -> None:
        """Unpacks the archive into an empty folder, with everything owned by ``user``, as a cluster of its own.

        Raises:
            LocalStackError: The archive is damaged.
            OSError: The folder cannot be written.
        """
        try:
            contents = memoryview(zlib.decompress(self.packed))
        except zlib.error as error:
            raise LocalStackError(f"a file of this installation is damaged: {error}") from None
        starts = list(accumulate((content.stored for content in self.index.contents), initial=0))
        for name in self.index.folders:
            path = f"{folder}/{name}"
            os.mkdir(path, PRIVATE_FOLDER_MODE)  # noqa: PTH102  a Path each would take half of the time
            if user is not None:
                os.chown(path, user.uid, user.gid)
        for name, number in self.index.files.items():
            content, start = self.index.contents[number], starts[number]
            descriptor = os.open(f"{folder}/{name}", os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE_FILE_MODE)
            try:
                if user is not None:
                    os.fchown(descriptor, user.uid, user.gid)
                if content.size > content.stored:
                    _reserve(descriptor, content.size)
                _write(descriptor, contents[start : start + content.stored])
            finally:
                os.close(descriptor)
        draw_system_identifier(folder)


def archive_path(version: str) -> Path:
    """Returns the path of the archive for this Postgres and this system, which may not exist."""
    return FOLDER / f"cluster-{version}-{sys.platform}-{os.uname().machine}.bin"


def pack(cluster: Path, archive: Path, made_from: Iterable[Path]) -> None:
    """Packs the data folder of a Postgres that has been shut down.

    Args:
        made_from: The files of this package that decide its contents.
    """
    paths = sorted(path for path in cluster.rglob("*") if not path.name.endswith(NOT_PACKED))
    folders, files, numbers = [], {}, dict[bytes, int]()
    for path in paths:
        name = str(path.relative_to(cluster))
        if path.is_dir():
            folders.append(name)
        else:
            files[name] = numbers.setdefault(path.read_bytes(), len(numbers))
    stored = [content.rstrip(b"\0") for content in numbers]
    contents = [Content(len(some), len(whole)) for some, whole in zip(stored, numbers, strict=True)]
    index = Index(_digests(str(path.relative_to(PACKAGE)) for path in made_from), folders, files, contents)
    archive.write_bytes(msgspec.json.encode(index) + b"\n" + zlib.compress(b"".join(stored)))


def _digests(names: Iterable[str]) -> dict[str, str]:
    """Returns the SHA-256 of the files that exist."""
    found = ((name, PACKAGE / name) for name in names)
    return {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in found if path.is_file()}


def _reserve(descriptor: int, size: int) -> None:
    """Fills a new file with zeros."""
    if sys.platform == "darwin":
        os.ftruncate(descriptor, size)
    else:
        os.posix_fallocate(descriptor, 0, size)


def _write(descriptor: int, content: memoryview) -> None:
    while content:
        content = content[os.write(descriptor, content) :]


def draw_system_identifier(data: Path) -> None:
    """Gives a stopped cluster a new random system identifier, by which replication distinguishes clusters.

    The control file has it, and the first page of each log segment.

    Raises:
        LocalStackError: The control file is not one, or is damaged.
        OSError: A file cannot be written.
    """
    control = data / _CONTROL_FILE
    content = control.read_bytes() if control.exists() else b""
    before, end = content[:8], _checksum_offset(content)
    identifier = os.urandom(8)
    changed = identifier + content[8:end]
    for segment in sorted((data / _LOG_FOLDER).glob("[0-9A-F]" * 24)):
        with segment.open("r+b") as log:
            log.seek(_LOG_HEADER)
            if log.read(8) == before:
                log.seek(_LOG_HEADER)
                log.write(identifier)
    with control.open("r+b") as file:
        file.write(changed + struct.pack("=I", crc32c(changed)))


def _checksum_offset(content: bytes) -> int:
    """Returns the offset in the control file of the checksum of all before it; it depends on Postgres' version."""
    value = ~0
    for offset, byte in enumerate(content[:_MAX_CONTROL_BYTES]):
        if offset >= 8 and offset % 4 == 0 and content[offset : offset + 4] == struct.pack("=I", ~value & 0xFFFFFFFF):
            return offset
        value = _next(value, byte)
    raise LocalStackError(f"a file of this installation is damaged: {_CONTROL_FILE} has no valid checksum")


def crc32c(content: bytes) -> int:
    """Returns the CRC-32C (Castagnoli) of ``content``, which Postgres uses for its control file."""
    value = ~0
    for byte in content:
        value = _next(value, byte)
    return ~value & 0xFFFFFFFF


def _next(value: int, byte: int) -> int:
    value = (value & 0xFFFFFFFF) ^ byte
    for _ in range(8):
        value = (value >> 1) ^ (_CASTAGNOLI if value & 1 else 0)
    return value
