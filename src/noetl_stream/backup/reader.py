"""A reader of backup folders, which checks their completeness and signature."""

from __future__ import annotations

import asyncio
import gzip
import tarfile
import zlib
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from hashlib import sha256
from io import RawIOBase
from typing import Any, BinaryIO

import msgspec

from noetl_stream.backup.folder import (
    FORMAT,
    KIND,
    MANIFEST,
    MAX_TEXT_BYTES,
    PIECE_BYTES,
    READABLE,
    SIGNATURE,
    SUMS,
    UNFINISHED,
    Manifest,
    sizes_of,
    table_file,
)
from noetl_stream.errors import NotFound, UsageError
from noetl_stream.ports.backup import TableShape
from noetl_stream.ports.files import Files, file_errors
from noetl_stream.sealing.age import AgeReader
from noetl_stream.sealing.chunk_reader import buffered
from noetl_stream.sealing.file_keys import FileKeys, SignedText


class BackupReader:
    """Reads a finished backup. Content is yielded only from files with the signed checksum; otherwise it raises.

    Attributes:
        signature: The signature of the backup.

    Raises:
        NotFound: there is no backup.
        UsageError: the manifest cannot be read.
        Unreachable: object storage is away; likewise each method.
    """

    def __init__(self, files: Files, keys: FileKeys) -> None:
        self.files = files
        self._keys = keys
        self._sizes = sizes_of(files)
        if SUMS not in self._sizes:
            raise NotFound(f"{files.place} is not a finished backup", hint="`noetl-stream backup list` shows those")
        signed = SignedText(self._read(SUMS), self._read(SIGNATURE) if SIGNATURE in self._sizes else b"")
        self.signature = keys.check(KIND, signed)
        self._sums = dict(_sum_of(line) for line in signed.text.splitlines() if not line.startswith(b"#"))
        text = self._read(MANIFEST)
        self._manifest_sum = sha256(text).hexdigest()
        self.manifest = _decoded(text, files.place)

    @property
    def is_trusted(self) -> bool:
        """Returns whether a trusted key has signed the backup, or the reader accepts any."""
        return self.signature.is_trusted or (self._keys.accepts_unsigned and not self.signature.fault)

    @property
    def is_encrypted(self) -> bool:
        return bool(self.manifest.recipients)

    @property
    def is_readable(self) -> bool:
        """Returns whether there is a key for encrypted content; it may be the wrong one."""
        return not self.is_encrypted or bool(self._keys.identities)

    def damage(self) -> list[str]:
        """Returns the files that differ from ``SHA256SUMS``, and ``SHA256SUMS`` if its signature does: a line each."""
        found = sorted(set(self.files.sizes()) - {SUMS, SIGNATURE, UNFINISHED})
        expected = {MANIFEST, *map(self._table_file, self.manifest.database.tables)}
        lines = [f"{SUMS}: {self.signature.fault}"] if self.signature.fault else []
        lines += [f"{name}: missing" for name in sorted((set(self._sums) | expected) - set(found))]
        for name in found:
            if name not in self._sums:
                lines.append(f"{name}: not in {SUMS}")
            elif self._digest_of(name) != self._sums[name]:
                lines.append(f"{name}: damaged: its checksum differs")
        return lines

    async def lines(self, table: TableShape) -> AsyncIterator[bytes]:
        """Yields the rows of a table, in pieces."""
        pieces = self.pieces(table)
        while piece := await asyncio.to_thread(next, pieces, b""):
            yield piece

    def pieces(self, table: TableShape) -> Iterator[bytes]:
        """Yields the rows of a table like :meth:`lines`."""
        with self._open_content(self._table_file(table)) as file, gzip.open(file) as packed:
            while piece := packed.read(PIECE_BYTES):
                yield piece

    def objects(self) -> Iterator[tuple[str, bytes]]:
        """Yields the keys and stored bytes of the objects."""
        for name in sorted(self.files.sizes("objects")):
            with self._open_content(name) as file, tarfile.open(fileobj=file, mode="r|") as tar:
                for member in tar:
                    data = tar.extractfile(member)
                    assert data is not None
                    yield member.name, data.read()

    @property
    def size(self) -> int:
        """Returns the bytes of all files of the backup."""
        return sum(self._sizes.values())

    def _table_file(self, table: TableShape) -> str:
        return table_file(table, encrypted=self.is_encrypted)

    def _read(self, name: str) -> bytes:
        with self._open_file(name) as file:
            text = file.read(MAX_TEXT_BYTES + 1)
        if len(text) > MAX_TEXT_BYTES:
            raise UsageError(f"{self.files.place}/{name} has more than {MAX_TEXT_BYTES} bytes: it is of no backup")
        return text

    def _digest_of(self, name: str) -> str:
        if name == MANIFEST:
            return self._manifest_sum  # the sum of the manifest that was read
        with self._open_file(name) as file:
            return _SummedReader(file).rest_of_sum()

    @contextmanager
    def _open_content(self, name: str) -> Iterator[BinaryIO]:
        """Opens a file for reading it once, decrypted. Raises if it was replaced since it was checked."""
        with self._open_file(name) as file:
            summed = _SummedReader(file)
            content = buffered(summed, PIECE_BYTES)
            if self.is_encrypted:
                place = f"{self.files.place}/{name}"
                content = buffered(
                    AgeReader(content, self._sizes.get(name, 0), self._keys.identities, place), PIECE_BYTES
                )
            try:
                yield content
                is_same = summed.rest_of_sum() == self._sums.get(name)
            except (EOFError, gzip.BadGzipFile, tarfile.TarError, zlib.error):
                is_same = False
            if not is_same:
                hint = "look at who can write there"
                raise UsageError(f"{self.files.place}/{name} was changed while it was read", hint=hint)

    @contextmanager
    def _open_file(self, name: str) -> Iterator[BinaryIO]:
        with file_errors(self.files.place), self.files.open(name) as file:
            yield file


class _SummedReader(RawIOBase):
    """A file that is read once, with a checksum."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._sum = sha256()
        self._at = 0

    def readable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: Any) -> int:
        data = self._file.read(len(buffer))
        self._sum.update(data)
        self._at += len(data)
        buffer[: len(data)] = data
        return len(data)

    def rest_of_sum(self) -> str:
        """Returns the checksum of the whole file, read to its end."""
        while piece := self._file.read(PIECE_BYTES):
            self._sum.update(piece)
        return self._sum.hexdigest()


def find_backups(files: Files, keys: FileKeys) -> tuple[list[BackupReader], list[str]]:
    """Returns the finished backups in a place, and the names of unfinished ones, both by name.

    Raises:
        NotFound: the folder does not exist.
        UsageError: the folder, or a manifest in it, cannot be read.
        Unreachable: object storage is away.
    """
    places = [name.split("/") for name in files.sizes()]
    finished = {place[0] for place in places if place[1:] == [SUMS]}
    begun = {place[0] for place in places if place[1:] == [UNFINISHED]}
    return [BackupReader(files.below(name), keys) for name in sorted(finished)], sorted(begun - finished)


def _decoded(text: bytes, place: str) -> Manifest:
    try:
        manifest = msgspec.json.decode(text, type=Manifest)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{place}/{MANIFEST} cannot be read: {error}") from None
    if manifest.format not in READABLE:
        hint = "use a newer release"
        raise UsageError(f"{place} has format {manifest.format}, this version reads {FORMAT}", hint=hint)
    return manifest


def _sum_of(line: bytes) -> tuple[str, str]:
    digest, _, name = line.decode(errors="replace").partition("  ")
    return name, digest
