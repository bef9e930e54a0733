"""Writes the folder of a backup."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from io import BytesIO
from typing import Final, Protocol

import msgspec

from noetl_stream.backup.folder import (
    KIND,
    MANIFEST,
    SIGNATURE,
    SUMS,
    UNFINISHED,
    Manifest,
    objects_file,
    sizes_of,
    table_file,
)
from noetl_stream.errors import NoetlError, UsageError
from noetl_stream.ports.backup import Sink, TableShape
from noetl_stream.ports.files import Files, NewFile
from noetl_stream.sealing.age import AgeWriter
from noetl_stream.sealing.file_keys import FileKeys

TAR_BYTES: Final = 1 << 30
COMPRESSION: Final = 1
"""The fastest level of gzip: its output is 20 % larger than the best, in a tenth of the time."""


class BackupWriter:
    """Writes a backup, which does not count as one before :meth:`finish`. Replaces an unfinished one of this name.

    Raises:
        UsageError: the name is taken by something else, or it cannot be written; also raised by each method.
        Unreachable: object storage is away; likewise each method.
    """

    def __init__(self, files: Files, keys: FileKeys) -> None:
        self.files = files
        self._keys = keys
        self._encrypted = bool(keys.recipients)
        self._sums: dict[str, str] = {}
        self._tar: _Tar | None = None
        self._tars = 0
        self.objects = self.object_bytes = 0
        there = sizes_of(files)
        if there and (UNFINISHED not in there or SUMS in there):
            raise UsageError(f"{files.place} exists already", hint="give the backup another name")
        self._write(UNFINISHED, b"This backup is being made, or was interrupted.\n")
        for name in there:
            if name != UNFINISHED:
                files.remove(name)

    @contextmanager
    def table(self, table: TableShape) -> Iterator[Sink]:
        """Opens a file that takes the rows of a table."""
        written = self._content(table_file(table, encrypted=self._encrypted))
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
            self._tar = _Tar(self._content(objects_file(self._tars, encrypted=self._encrypted)))
        self._tar.add(key, data)
        self.objects += 1
        self.object_bytes += len(data)

    def finish(self, manifest: Manifest) -> None:
        """Writes the rest of the backup, signs it, and then marks it as finished."""
        self._close_tar()
        manifest_file = self._summed(MANIFEST)
        manifest_file.write(msgspec.json.format(msgspec.json.encode(manifest)))
        manifest_file.close()
        lines = "".join(f"{digest}  {name}\n" for name, digest in sorted(self._sums.items()))
        signed = self._keys.sign(KIND, lines)
        if signed.signature:
            self._write(SIGNATURE, signed.signature)
        self._write(SUMS, signed.text)
        self.files.remove(UNFINISHED)

    def abandon(self) -> None:
        """Removes the unfinished backup, as far as it can be."""
        if self._tar is not None:
            self._tar.abandon()
        with contextlib.suppress(NoetlError):
            there = sizes_of(self.files)
            for name in sorted(there, key=UNFINISHED.__eq__):
                self.files.remove(name)

    def _write(self, name: str, data: bytes) -> None:
        written = self.files.create(name)
        written.write(data)
        written.close()

    def _summed(self, name: str) -> _SummedFile:
        return _SummedFile(self.files.create(name), lambda digest: self._sums.__setitem__(name, digest))

    def _content(self, name: str) -> _ContentFile:
        """Begins a file that is encrypted if the backup is."""
        summed = self._summed(name)
        return _EncryptedFile(summed, self._keys.recipients) if self._encrypted else summed

    def _close_tar(self) -> None:
        if self._tar is not None:
            self._tar.close()
            self._tar = None


class _ContentFile(NewFile, Protocol):
    def flush(self) -> None:
        """Does nothing: no reader sees the file before it is closed."""


class _SummedFile:
    """A new file of a backup; ``note`` gets its checksum when it is closed."""

    def __init__(self, file: NewFile, note: Callable[[str], None]) -> None:
        self._note = note
        self._sum = sha256()
        self._file = file

    def write(self, data: bytes) -> int:
        self._sum.update(data)
        return self._file.write(data)

    def flush(self) -> None: ...

    def close(self) -> None:
        self._file.close()
        self._note(self._sum.hexdigest())

    def abandon(self) -> None:
        self._file.abandon()


class _EncryptedFile(AgeWriter):
    """A new file of a backup, which is encrypted as it is written."""

    def __init__(self, summed: _SummedFile, recipients: tuple[str, ...]) -> None:
        super().__init__(summed, recipients)
        self._summed = summed

    def close(self) -> None:
        super().close()
        self._summed.close()

    def abandon(self) -> None:
        self._summed.abandon()


class _Tar:
    """A tar archive of objects."""

    def __init__(self, written: _ContentFile) -> None:
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
