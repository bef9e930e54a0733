"""The scratch folder of one attempt: files on the worker's disk while it runs, of bounded size."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

from noetl_stream.settings.tools import MAX_SCRATCH_BYTES_VARIABLE
from noetl_stream.tools.contract import OWN_TROUBLE, ToolFailure, beginning

_PIECE_BYTES: Final = 4 * 1024 * 1024
_FOLDER: Final = "files"


class Scratch:
    """A folder of files, none of which is ever whole in memory.

    Attributes:
        folder: The folder, which a process may have for a while.
        max_bytes, left_bytes: The bytes that may be written, and those that still may.
    """

    def __init__(self, folder: Path, max_bytes: int) -> None:
        self.folder = folder
        self.left_bytes = max_bytes
        self.max_bytes = max_bytes

    async def write(self, name: str, pieces: AsyncIterator[bytes], what: str) -> Path:
        """Writes a file. ``what`` names it in errors.

        Raises:
            ToolFailure: ``limit_exceeded``; what reading ``pieces`` raises.
            WorkerUnfit: the worker's disk is full.
        """
        path = self.folder / name
        with beginning(f"write {what} to {self.folder.parent.parent}", OWN_TROUBLE):
            file = await asyncio.to_thread(path.open, "wb")
        try:
            async for piece in pieces:
                self.take(len(piece), what)
                with beginning(f"write {what} to {self.folder.parent.parent}", OWN_TROUBLE):
                    await asyncio.to_thread(file.write, piece)
            with beginning(f"write {what} to {self.folder.parent.parent}", OWN_TROUBLE):
                await asyncio.to_thread(file.flush)
        finally:
            with suppress(OSError):  # of what could not be written
                file.close()
        return path

    def take(self, size_bytes: int, what: str) -> None:
        """Counts bytes that are written.

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


@asynccontextmanager
async def scratch_folder(kind: str, max_bytes: int) -> AsyncIterator[Scratch]:
    """Makes a scratch folder for a task of this kind, and removes it at the end.

    Raises:
        WorkerUnfit: the worker's disk is full.
    """
    with beginning("make a folder for the files of the task", OWN_TROUBLE):
        root = Path(tempfile.mkdtemp(prefix=f"noetl-{kind}-"))
    try:
        with beginning("make a folder for the files of the task", OWN_TROUBLE):
            (root / _FOLDER).mkdir()
        yield Scratch(root / _FOLDER, max_bytes)
    finally:
        await asyncio.shield(asyncio.to_thread(shutil.rmtree, root, ignore_errors=True))
