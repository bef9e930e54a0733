"""The stored files of an archive: signed, and encrypted if there are recipients.

Beside a file there are ``<file>.sums``, the SHA-256 of each of its chunks of 64 KiB, so that a part that is read alone
can be verified, and ``<file>.sums.sig``, the signature of ``<file>.sums`` (:mod:`noetl_stream.sealing.file_keys`). Both
are written before the file. An encrypted file is in the format of age, with ``.age`` after its name; the encrypted form
is signed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, BinaryIO, Final, NamedTuple

from noetl_stream.errors import UsageError
from noetl_stream.sealing.age import AgeReader, AgeWriter
from noetl_stream.sealing.chunk_reader import CHUNK_BYTES, ChunkReader, buffered
from noetl_stream.sealing.file_keys import FileKeys, Signature, SignedText

if TYPE_CHECKING:
    from noetl_stream.adapters.files.duckdb_files import DuckdbFiles
    from noetl_stream.adapters.files.folder import FolderFiles
    from noetl_stream.adapters.files.objects import ObjectFiles

KIND: Final = "archive"
SUMS: Final = ".sums"
SIGNATURE: Final = ".sums.sig"
ENCRYPTED: Final = ".age"
SUM_BYTES: Final = 65
MAX_HEAD_BYTES: Final = 2_048


class StoredFile(NamedTuple):
    """A stored file: its size, and the suffixes of the files beside it."""

    size: int
    beside: tuple[str, ...]


class ArchiveFolder:
    """The files of an archive, by their stored names.

    Args:
        origin: The writer and its source, signed with each file.

    Raises:
        UsageError: a file cannot be read, or no trusted key has signed it; of any method.
    """

    def __init__(self, files: FolderFiles | ObjectFiles, keys: FileKeys, origin: str = "") -> None:
        self._files = files
        self._origin = origin
        self._keys = keys
        self.place = files.place

    def scratch(self) -> TemporaryDirectory[str]:
        """Makes a folder for unfinished files."""
        return self._files.scratch()

    def put(self, made: Path, name: str) -> None:
        """Signs and encrypts a file from :meth:`scratch`, and stores it."""
        if self._keys.recipients:
            made, name = _encrypted(made, self._keys.recipients), name + ENCRYPTED
        if self._keys.signing_key:
            signed = self._keys.sign(KIND, _sums_of(made, name, self._origin))
            self._write(name + SUMS, signed.text)
            self._write(name + SIGNATURE, signed.signature)
        self._files.put(made, name)

    def files(self, under: str, suffix: str) -> dict[str, StoredFile]:
        """Returns the files in a folder with this suffix (before encryption), by name."""
        found = self._files.sizes(under)
        return {
            name: StoredFile(size, tuple(end for end in (SUMS, SIGNATURE) if name + end in found))
            for name, size in sorted(found.items())
            if name.removesuffix(ENCRYPTED).endswith(suffix)
        }

    def is_usable(self, name: str, stored: StoredFile) -> bool:
        """Returns whether a file can be decrypted and was signed by a trusted key."""
        if name.endswith(ENCRYPTED) and not self._keys.identities:
            return False
        return self._is_believed(self._keys.check(KIND, self._signed_sums(name, stored)))

    def for_duckdb(self, files: Mapping[str, StoredFile]) -> DuckdbFiles:
        """Opens these files for DuckDB."""
        from noetl_stream.adapters.files.duckdb_files import DuckdbFiles

        sums = {name: self._checked_sums(name, stored) for name, stored in files.items()}

        def open_file(name: str) -> BinaryIO:
            return self._open(name, files[name].size, sums[name])

        return DuckdbFiles(open_file)

    def _open(self, name: str, size: int, sums: list[str]) -> BinaryIO:
        file, where = self._files.open_parts(name, size), f"archive {self.place}/{name}"
        if sums:
            file = buffered(_SummedReader(file, size, sums, where))
        return buffered(AgeReader(file, size, self._keys.identities, where)) if name.endswith(ENCRYPTED) else file

    def _checked_sums(self, name: str, stored: StoredFile) -> list[str]:
        """Returns the checksums of a file's chunks; none if they are not trusted."""
        signed = self._signed_sums(name, stored)
        signature = self._keys.check(KIND, signed)
        if not self._is_believed(signature):
            raise self._doubt(name, signature)
        if not signature.key:
            return []
        lines = signed.text.decode(errors="replace").splitlines()
        if lines[1:2] != [_head(name, stored.size)]:
            raise UsageError(f"archive {self.place}/{name} is damaged: {name}{SUMS} is of another file")
        return lines[3:]

    def _is_believed(self, signature: Signature) -> bool:
        return signature.is_trusted or (self._keys.accepts_unsigned and not signature.fault)

    def _doubt(self, name: str, signature: Signature) -> UsageError:
        place = f"archive {self.place}/{name}"
        if signature.fault:
            return UsageError(f"{place} is damaged: {name}{SUMS}: {signature.fault}")
        if signature.key:
            hint = "if you know whose key it is, add it to NOETL_ARCHIVE_TRUSTED_KEYS; --unsigned accepts anybody's"
            return UsageError(f"{place} is signed with a key that is not trusted: {signature.key}", hint=hint)
        hint = "if you know it to be yours, as one of an older release: --unsigned"
        return UsageError(f"{place} is not signed: whoever can write there may have made it", hint=hint)

    def _signed_sums(self, name: str, stored: StoredFile) -> SignedText:
        most = MAX_HEAD_BYTES + SUM_BYTES * (stored.size // CHUNK_BYTES + 1)
        return SignedText(*(self._read(name + end, most) if end in stored.beside else b"" for end in (SUMS, SIGNATURE)))

    def _read(self, name: str, most: int) -> bytes:
        """Reads a file, up to the length it must have."""
        with self._files.open(name) as file:
            return file.read(most)

    def _write(self, name: str, data: bytes) -> None:
        file = self._files.create(name)
        file.write(data)
        file.close()


class _SummedReader(ChunkReader):
    """A file whose chunks have known checksums."""

    def __init__(self, file: BinaryIO, size: int, sums: list[str], where: str) -> None:
        super().__init__(size)
        self._file = file
        self._sums = sums
        self._where = where

    def load(self, first: int, last: int) -> bytes:
        self._file.seek(first * CHUNK_BYTES)
        data = self._file.read((last - first + 1) * CHUNK_BYTES)
        found = [sha256(data[at : at + CHUNK_BYTES]).hexdigest() for at in range(0, len(data), CHUNK_BYTES)]
        if found != self._sums[first : last + 1]:
            raise UsageError(f"{self._where} is damaged: its checksums differ")
        return data


def _encrypted(made: Path, recipients: tuple[str, ...]) -> Path:
    closed = made.with_name(made.name + ENCRYPTED)
    with closed.open("wb") as file:
        writer = AgeWriter(file, recipients)
        for chunk in _chunks(made):
            writer.write(chunk)
        writer.close()
    return closed


def _sums_of(made: Path, name: str, origin: str) -> str:
    sums = [sha256(chunk).hexdigest() for chunk in _chunks(made)]
    return "\n".join([_head(name, made.stat().st_size), f"# {origin}", *sums, ""])


def _head(name: str, size: int) -> str:
    return f"# {name}, {size} bytes, SHA-256 of each {CHUNK_BYTES}"


def _chunks(made: Path) -> Iterator[bytes]:
    with made.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            yield chunk
