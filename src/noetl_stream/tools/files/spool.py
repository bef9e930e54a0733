"""Files and tables by reference on the disk of a worker, for tasks that read them by path (LANGUAGE §10)."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Final

from noetl_stream.sealing.data_references import DataReference
from noetl_stream.settings.tools import DEFAULT_MAX_SCRATCH_BYTES, MAX_SCRATCH_BYTES_VARIABLE
from noetl_stream.tools.children.mounts import remove_folder
from noetl_stream.tools.contract import OWN_TROUBLE, ToolCall, ToolFailure, beginning
from noetl_stream.tools.files.folders import made_folder, remove_folders_left

MAX_FILES: Final = 1_000
"""The most files that one task may have on the disk of its worker, and that it may return."""

_PREFIX: Final = "noetl-spool-"
_MAX_NAME_BYTES: Final = 200


@asynccontextmanager
async def spool_folder() -> AsyncIterator[Path]:
    """Yields a folder for the files of one task, which children can read; it is removed at the end of the context.

    Raises:
        WorkerUnfit: There is no room for it.
    """
    with beginning("make a folder for files", OWN_TROUBLE):
        folder, lock, inner = await asyncio.to_thread(_make_folder)
    try:
        yield inner
    finally:
        await asyncio.shield(asyncio.to_thread(remove_folder, folder))
        os.close(lock)


async def spool(
    call: ToolCall, reference: DataReference, folder: Path, name: str, *, most_bytes: int = DEFAULT_MAX_SCRATCH_BYTES
) -> Path:
    """Writes a file or table that ``call.data`` opened below ``folder``, and returns its path.

    Args:
        name: The name to give it, if there can be such a file.
        most_bytes: The most bytes of all files in the folder.

    Raises:
        ToolFailure: ``limit_exceeded``: the files of the task are too many or too large; ``result_lost``.
        WorkerUnfit: There is no room on the disk.
    """
    held = await asyncio.to_thread(_sizes, folder)
    if len(held) >= MAX_FILES:
        raise ToolFailure.of("limit_exceeded", f"a task opens at most {MAX_FILES:,} files")
    if (total := sum(held) + reference.size) > most_bytes:
        message = f"with {reference.what}, the files of this task have {total:,} bytes on the disk of its worker"
        raise ToolFailure.of("limit_exceeded", f"{message}; at most {most_bytes:,} ({MAX_SCRATCH_BYTES_VARIABLE})")
    path = folder / str(len(held)) / file_name(name)
    with beginning(f"write {reference.what} to its disk", OWN_TROUBLE):
        path.parent.mkdir(mode=0o755)
        with path.open("xb") as file:
            async for part in call.data.read(reference):
                await asyncio.to_thread(file.write, part)
        path.chmod(0o444)
        path.parent.chmod(0o755)
    return path


def file_name(name: str) -> str:
    """Returns the name of a file without folders, shortened if need be: one that every file system takes."""
    last = name.replace("\\", "/").rpartition("/")[2]
    printable = "".join(sign for sign in last if sign.isprintable()).encode(errors="replace")
    # its end says what it is
    return printable[-_MAX_NAME_BYTES:].decode(errors="ignore").strip(" ").lstrip(".") or "file"


def _make_folder() -> tuple[str, int, Path]:
    _remove_left()
    folder, lock = made_folder(_PREFIX)
    inner = Path(tempfile.mkdtemp(dir=folder))
    inner.chmod(0o755)
    Path(folder).chmod(0o711)  # so that children reach theirs, by a name that others on this machine cannot list
    return folder, lock, inner


@cache
def _remove_left() -> None:
    remove_folders_left(_PREFIX)


def _sizes(folder: Path) -> list[int]:
    return [found.stat().st_size for found in folder.glob("*/*")]
