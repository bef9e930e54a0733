"""The scratch folder of one attempt: files on the worker's disk while it runs, of bounded number and size."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from noetl_stream.sealing.data_references import DataReference
from noetl_stream.settings.tools import DEFAULT_MAX_SCRATCH_BYTES, MAX_SCRATCH_BYTES_VARIABLE
from noetl_stream.tools.children.mounts import remove_folder
from noetl_stream.tools.contract import OWN_TROUBLE, DataStore, ToolFailure, beginning
from noetl_stream.tools.scratch.folders import made_folder, remove_folders_left
from noetl_stream.tools.scratch.kept_tables import KEPT_S, KeptTables

MAX_FILES: Final = 1_000
"""The most files and tables that one task may have on the disk of its worker, and that it may return."""

_PREFIX: Final = "noetl-scratch-"
_MAX_NAME_BYTES: Final = 200
_PIECE_BYTES: Final = 4 * 1024 * 1024


class Scratch:
    """A folder of files, none of which is ever in memory as a whole.

    Attributes:
        folder: The folder, which children can read, and which a process may temporarily own.
        max_bytes, left_bytes: The bytes that may be written, in total and still.
    """

    def __init__(self, folder: Path, max_bytes: int, kept: KeptTables) -> None:
        self.folder = folder
        self.left_bytes = max_bytes
        self.max_bytes = max_bytes
        self._kept = kept
        self._files = 0

    async def fetch(self, data: DataStore, reference: DataReference, name: str, what: str = "") -> Path:
        """Writes a file or table that ``data`` opened, read-only, and returns its path.

        Args:
            name: Its name, if a file can have it.
            what: Its name in errors, by default that of the reference.

        Raises:
            ToolFailure: ``limit_exceeded``; ``result_lost``.
            WorkerUnfit: The worker's disk is full.
        """
        what = what or reference.what
        if self._files == MAX_FILES:
            raise ToolFailure.of("limit_exceeded", f"{what}: a task may have {MAX_FILES:,} files on its worker's disk")
        self.take(reference.size, what)
        path = self.folder / str(self._files) / file_name(name)
        self._files += 1
        pieces = data.read(reference)  # this records the reading, even of a kept table

        async def write() -> None:
            with path.open("xb") as file:
                async for piece in pieces:
                    await asyncio.to_thread(file.write, piece)
            path.chmod(0o444)

        with beginning(f"write {what} to {self.folder.parent.parent}", OWN_TROUBLE):
            path.parent.mkdir()
            path.parent.chmod(0o755)
            await self._kept.linked(reference, path, write)
        return path

    def take(self, size_bytes: int, what: str) -> None:
        """Counts bytes to be written.

        Raises:
            ToolFailure: ``limit_exceeded``.
        """
        self.left_bytes -= size_bytes
        if self.left_bytes < 0:
            raise too_large(what, self.max_bytes)

    async def read(self, name: str) -> AsyncIterator[bytes]:
        """Yields the bytes of a file."""
        file = await asyncio.to_thread((self.folder / name).open, "rb")
        try:
            while piece := await asyncio.to_thread(file.read, _PIECE_BYTES):
                yield piece
        finally:
            file.close()


def too_large(what: str, max_bytes: int) -> ToolFailure:
    """Makes the failure for more bytes than a task may have on the disk."""
    message = f"{what}: a task may have {max_bytes:,} bytes on its worker's disk ({MAX_SCRATCH_BYTES_VARIABLE})"
    return ToolFailure.of("limit_exceeded", message)


class ScratchFolders:
    """Makes the scratch folders of the tasks of one kind. Those of killed workers are removed at the next start.

    Args:
        max_bytes: The most bytes that one task may write.
        kept_s: How long a fetched table is kept for the next task.
    """

    def __init__(self, max_bytes: int = DEFAULT_MAX_SCRATCH_BYTES, kept_s: float = KEPT_S) -> None:
        remove_folders_left(_PREFIX)
        self._max_bytes = max_bytes
        self._kept = KeptTables(_PREFIX, max_bytes, kept_s)

    @asynccontextmanager
    async def folder(self) -> AsyncIterator[Scratch]:
        """Yields a folder for one task; it is removed at the end of the context.

        Raises:
            WorkerUnfit: The worker's disk is full.
        """
        with beginning("make a folder for the files of the task", OWN_TROUBLE):
            folder, lock, inner = await asyncio.to_thread(_make_folder)
        try:
            yield Scratch(inner, self._max_bytes, self._kept)
        finally:
            await asyncio.shield(asyncio.to_thread(remove_folder, folder))
            os.close(lock)

    async def close(self) -> None:
        """Removes tables that are kept for further tasks."""
        await self._kept.close()


def file_name(name: str) -> str:
    """Returns the name of a file without folders, shortened to one that every file system accepts."""
    last = name.replace("\\", "/").rpartition("/")[2]
    printable = "".join(sign for sign in last if sign.isprintable()).encode(errors="replace")
    # its suffix shows its type
    return printable[-_MAX_NAME_BYTES:].decode(errors="ignore").strip(" ").lstrip(".") or "file"


def _make_folder() -> tuple[str, int, Path]:
    folder, lock = made_folder(_PREFIX)
    inner = Path(tempfile.mkdtemp(dir=folder))
    inner.chmod(0o755)
    Path(folder).chmod(0o711)  # so that children reach theirs, by a name that others on this machine cannot list
    return folder, lock, inner
