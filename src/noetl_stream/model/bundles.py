"""Bundles: the Python packages of a project as one zip file, named by its digest."""

from __future__ import annotations

import re
import stat
from collections.abc import Mapping
from hashlib import sha256
from io import BytesIO
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final, NamedTuple

from noetl_stream.errors import UsageError

if TYPE_CHECKING:  # all commands know the bounds, few read a bundle
    from zipfile import ZipInfo

BUNDLE_PATTERN: Final = r"[^\s@/][^\s@]{0,511}@[0-9a-f]{64}"
"""The form of a bundle's name: the path of its project, ``@`` and the SHA-256 of its zip file."""

PACKAGES: Final = "packages"
"""The folder of the zip file whose modules can be imported."""

LOCKS: Final = "locks"
"""The folder of the zip file with the lock files of tasks' requirements."""

MAX_BUNDLE_BYTES: Final = 8 * 1024 * 1024
MAX_BUNDLE_FILES: Final = 4_000

_WRITTEN: Final = (1980, 1, 1, 0, 0, 0)
_STORED: Final = 0
_FILE_MODE: Final = (stat.S_IFREG | 0o644) << 16
_BOUND: Final = f"a bundle has at most {MAX_BUNDLE_FILES:,} files and {MAX_BUNDLE_BYTES:,} bytes"


class BundleRefused(UsageError):
    """The zip file is not a bundle; the message names the invalid file in it."""


class BundleName(NamedTuple):
    project: str
    digest: str

    def __str__(self) -> str:
        return f"{self.project}@{self.digest}"


def bundle_name(text: str) -> BundleName | None:
    """The name of a bundle as written; ``None`` if it is invalid."""
    project, _, digest = text.rpartition("@")
    return BundleName(project, digest) if re.fullmatch(BUNDLE_PATTERN, text) else None


def named_bundle(project: str, data: bytes) -> BundleName:
    return BundleName(project, sha256(data).hexdigest())


def is_bundle(name: str, data: bytes) -> bool:
    return name.rpartition("@")[2] == sha256(data).hexdigest()


def zip_of(files: Mapping[str, bytes]) -> bytes:
    """The zip file of these files, by their paths in it: the same bytes on each machine, since nothing is compressed.

    Raises:
        BundleRefused: there are too many files or bytes.
    """
    from zipfile import ZipFile, ZipInfo

    _check_bounds(len(files), sum(map(len, files.values())))
    written = BytesIO()
    with ZipFile(written, "w", _STORED) as archive:
        for name in sorted(files):
            entry = ZipInfo(name, _WRITTEN)
            entry.create_system, entry.external_attr = 3, _FILE_MODE
            archive.writestr(entry, files[name])
    _check_bounds(len(files), written.tell())
    return written.getvalue()


def files_of(data: bytes) -> dict[str, bytes]:
    """The files of a bundle, by their paths. Nothing beyond its bounds is read.

    Raises:
        BundleRefused: it is not a zip file, or has links, paths that lead out of it, or too many files or bytes.
    """
    from zipfile import BadZipFile, ZipFile

    _check_bounds(0, len(data))
    try:
        with ZipFile(BytesIO(data)) as archive:
            entries = archive.infolist()
            _check_bounds(len(entries), sum(entry.file_size for entry in entries))
            for entry in entries:
                _check(entry)
            found = {entry.filename: archive.read(entry) for entry in entries}
    except (BadZipFile, NotImplementedError, RuntimeError, ValueError, OSError, EOFError) as error:
        raise BundleRefused(f"not a bundle: {error}") from None
    if len(found) < len(entries):
        raise BundleRefused("a file is in the bundle twice")
    for name in found:
        if above := next((str(one) for one in PurePosixPath(name).parents if str(one) in found), None):
            raise BundleRefused(f"{above}: a file of the bundle, and a folder")
    return found


def _check(entry: ZipInfo) -> None:
    name, kind = entry.filename, stat.S_IFMT(entry.external_attr >> 16)
    if entry.orig_filename != name or "\\" in name or not name.isprintable() or len(name) > 512:
        raise BundleRefused(f"{name!r}: not a path in a bundle")
    if name.startswith("/") or any(part in ("", ".", "..") for part in name.split("/")):
        raise BundleRefused(f"{name}: leads out of the bundle, or is a folder")
    if kind not in (0, stat.S_IFREG):
        raise BundleRefused(f"{name}: a link or a device")
    if entry.compress_type != _STORED:
        raise BundleRefused(f"{name}: compressed; files of a bundle are stored as they are")


def _check_bounds(files: int, size: int) -> None:
    if files > MAX_BUNDLE_FILES:
        raise BundleRefused(f"{files:,} files: {_BOUND}")
    if size > MAX_BUNDLE_BYTES:
        raise BundleRefused(f"{size:,} bytes: {_BOUND}")
