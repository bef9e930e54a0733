"""The folder of a backup, on a disk or in object storage: its files, and whether it is whole.

- ``manifest.json``: :class:`Manifest`.
- ``tables/<name>.copy.gz``: the rows of a table, in Postgres's text format.
- ``objects/<number>.tar``: objects by key, as they are stored: sealed.
- ``SHA256SUMS``: of all other files, in the format of ``sha256sum``. It is written last.

An unfinished backup also has ``UNFINISHED``, which is written first. A backup has no keys, and nothing that opens
sealed data.
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import tarfile
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from io import BytesIO
from typing import BinaryIO, Final

import msgspec

from noetl_stream.errors import NoetlError, NotFound, UsageError
from noetl_stream.ports.backup import DatabaseShape, Sink, TableShape
from noetl_stream.ports.files import Files, NewFile, file_errors

FORMAT: Final = 1
MANIFEST: Final = "manifest.json"
SUMS: Final = "SHA256SUMS"
UNFINISHED: Final = "UNFINISHED"
PIECE_BYTES: Final = 1 << 20
TAR_BYTES: Final = 1 << 30
COMPRESSION: Final = 1
"""The fastest level of gzip: it leaves 20 % more than the best, in a tenth of the time."""


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """The contents of a backup.

    Attributes:
        created_at: RFC 3339; the database is as of a moment after it.
        release: The release that made the backup.
        rows: The number of rows, by table.
        missing: Keys of objects that rows name and the object store did not have: they were lost before, or their
            execution was deleted while the backup was made.
    """

    format: int = FORMAT
    created_at: str
    release: str
    database: DatabaseShape
    rows: dict[str, int]
    objects: int
    object_bytes: int
    missing: list[str]


class BackupWriter:
    """Writes a backup, which does not count as one before :meth:`finish`. Replaces an unfinished one of this name.

    Raises:
        UsageError: there is something else of this name, or it cannot be written; likewise each method.
        Unreachable: object storage is away; likewise each method.
    """

    def __init__(self, files: Files) -> None:
        self.files = files
        self._sums: dict[str, str] = {}
        self._tar: _Tar | None = None
        self._tars = 0
        self.objects = self.object_bytes = 0
        there = _sizes(files)
        if there and (UNFINISHED not in there or SUMS in there):
            raise UsageError(f"{files.place} exists already", hint="give the backup another name")
        self._begin()
        for name in there:
            if name != UNFINISHED:
                files.remove(name)

    def _begin(self) -> None:
        marker = self.files.create(UNFINISHED)
        marker.write(b"This backup is being made, or was interrupted.\n")
        marker.close()

    @contextmanager
    def table(self, table: TableShape) -> Iterator[Sink]:
        """Opens a file that takes the rows of a table."""
        written = self._file(table_file(table))
        packed = gzip.GzipFile("", "wb", COMPRESSION, written, mtime=0)

        async def sink(data: bytes) -> None:
            await asyncio.to_thread(packed.write, data)

        try:
            yield sink
        except BaseException:
            written.abandon()
            raise
        packed.close()
        written.close()

    def add_object(self, key: str, data: bytes) -> None:
        if self._tar is not None and self._tar.size > TAR_BYTES:
            self._close_tar()
        if self._tar is None:
            self._tars += 1
            self._tar = _Tar(self._file(f"objects/{self._tars:05}.tar"))
        self._tar.add(key, data)
        self.objects += 1
        self.object_bytes += len(data)

    def finish(self, manifest: Manifest) -> None:
        """Writes the rest of the backup, and then marks it as finished."""
        self._close_tar()
        self._write(MANIFEST, msgspec.json.format(msgspec.json.encode(manifest)))
        self._write(SUMS, "".join(f"{digest}  {name}\n" for name, digest in sorted(self._sums.items())).encode())
        self.files.remove(UNFINISHED)

    def abandon(self) -> None:
        """Removes the unfinished backup, as far as it can be."""
        if self._tar is not None:
            self._tar.abandon()
        with contextlib.suppress(NoetlError):
            there = _sizes(self.files)
            for name in sorted(there, key=UNFINISHED.__eq__):
                self.files.remove(name)

    def _write(self, name: str, data: bytes) -> None:
        written = self._file(name)
        written.write(data)
        written.close()

    def _file(self, name: str) -> _SummedFile:
        return _SummedFile(self.files.create(name), lambda digest: self._sums.__setitem__(name, digest))

    def _close_tar(self) -> None:
        if self._tar is not None:
            self._tar.close()
            self._tar = None


class BackupReader:
    """Reads a finished backup.

    Raises:
        NotFound: there is no backup.
        UsageError: the manifest cannot be read.
        Unreachable: object storage is away; likewise each method.
    """

    def __init__(self, files: Files) -> None:
        self.files = files
        if SUMS not in _sizes(files):
            raise NotFound(f"{files.place} is not a finished backup", hint="`noetl-stream backup list` shows those")
        text = self._read(MANIFEST)
        try:
            self.manifest = msgspec.json.decode(text, type=Manifest)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise UsageError(f"{files.place}/{MANIFEST} cannot be read: {error}") from None
        if self.manifest.format != FORMAT:
            found = self.manifest.format
            raise UsageError(
                f"{files.place} has format {found}, this version reads {FORMAT}", hint="use a newer release"
            )

    def damage(self) -> list[str]:
        """Returns the files that differ from ``SHA256SUMS``, a line each."""
        sums = dict(_sum_of(line) for line in self._read(SUMS).splitlines())
        found = sorted(set(self.files.sizes()) - {SUMS, UNFINISHED})
        expected = {MANIFEST, *(table_file(table) for table in self.manifest.database.tables)}
        lines = [f"{name}: missing" for name in sorted((set(sums) | expected) - set(found))]
        for name in found:
            if name not in sums:
                lines.append(f"{name}: not in {SUMS}")
            elif self._digest_of(name) != sums[name]:
                lines.append(f"{name}: damaged: its checksum differs")
        return lines

    async def lines(self, table: TableShape) -> AsyncIterator[bytes]:
        """Yields the rows of a table, in pieces."""
        pieces = self.pieces(table)
        while piece := await asyncio.to_thread(next, pieces, b""):
            yield piece

    def pieces(self, table: TableShape) -> Iterator[bytes]:
        """Yields the rows of a table like :meth:`lines`."""
        with self._open_file(table_file(table)) as file, gzip.open(file) as packed:
            while piece := packed.read(PIECE_BYTES):
                yield piece

    def objects(self) -> Iterator[tuple[str, bytes]]:
        """Yields the keys and stored bytes of the objects."""
        for name in sorted(self.files.sizes("objects")):
            with self._open_file(name) as file, tarfile.open(fileobj=file, mode="r:") as tar:
                for member in tar:
                    data = tar.extractfile(member)
                    assert data is not None
                    yield member.name, data.read()

    @property
    def size(self) -> int:
        """Returns the bytes of all files of the backup."""
        return sum(self.files.sizes().values())

    def _read(self, name: str) -> bytes:
        with self._open_file(name) as file:
            return file.read()

    def _digest_of(self, name: str) -> str:
        digest = sha256()
        with self._open_file(name) as file:
            while piece := file.read(PIECE_BYTES):
                digest.update(piece)
        return digest.hexdigest()

    @contextmanager
    def _open_file(self, name: str) -> Iterator[BinaryIO]:
        with file_errors(self.files.place), self.files.open(name) as file:
            yield file


def table_file(table: TableShape) -> str:
    return f"tables/{table.name}.copy.gz"


def find_backups(files: Files) -> tuple[list[BackupReader], list[str]]:
    """Returns the finished backups in a place, and the names of unfinished ones, both by name.

    Raises:
        NotFound: there is no such folder.
        UsageError: the folder, or a manifest in it, cannot be read.
        Unreachable: object storage is away.
    """
    places = [name.split("/") for name in files.sizes()]
    finished = {place[0] for place in places if place[1:] == [SUMS]}
    begun = {place[0] for place in places if place[1:] == [UNFINISHED]}
    return [BackupReader(files.below(name)) for name in sorted(finished)], sorted(begun - finished)


def _sizes(files: Files) -> Mapping[str, int]:
    try:
        return files.sizes()
    except NotFound:
        return {}


class _SummedFile:
    """A new file of a backup; ``note`` gets its checksum when it is closed."""

    def __init__(self, file: NewFile, note: Callable[[str], None]) -> None:
        self._note = note
        self._sum = sha256()
        self._file = file

    def write(self, data: bytes) -> int:
        self._sum.update(data)
        return self._file.write(data)

    def flush(self) -> None:
        """Does nothing: no reader sees the file before it is closed."""

    def close(self) -> None:
        self._file.close()
        self._note(self._sum.hexdigest())

    def abandon(self) -> None:
        self._file.abandon()


class _Tar:
    """A tar archive of objects."""

    def __init__(self, written: _SummedFile) -> None:
        self._written = written
        self._tar = tarfile.open(fileobj=written, mode="w|", format=tarfile.PAX_FORMAT)  # type: ignore[call-overload]  # noqa: SIM115
        self.size = 0

    def add(self, key: str, data: bytes) -> None:
        member = tarfile.TarInfo(key)
        member.size = len(data)
        self._tar.addfile(member, BytesIO(data))
        self.size += len(data)

    def close(self) -> None:
        self._tar.close()
        self._written.close()

    def abandon(self) -> None:
        self._written.abandon()


def _sum_of(line: bytes) -> tuple[str, str]:
    digest, _, name = line.decode(errors="replace").partition("  ")
    return name, digest
