"""The input files of a ``shell`` command in its folder, and its outputs there (LANGUAGE §12 *shell*)."""

from __future__ import annotations

import asyncio
import mimetypes
import os
import stat
from collections.abc import AsyncIterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

from noetl_stream.tools.contract import ToolCall, ToolFailure
from noetl_stream.tools.inputs import invalid_input
from noetl_stream.tools.scratch.parquet_footer import footer_of
from noetl_stream.tools.scratch.scratch import MAX_FILES, Scratch, file_name

MAX_PATTERNS: Final = 100
MAX_SEEN: Final = 100_000
"""The most files and folders of a command that are searched for its outputs."""

_ANY_FOLDERS: Final = "**"
_PIECE_BYTES: Final = 1024 * 1024
_UNKNOWN: Final = "application/octet-stream"

Parts = tuple[str, ...]


def checked_name(name: str) -> str:
    """Returns the name of a file in the folder of a command.

    Raises:
        ValueError: It is none.
    """
    if name != file_name(name):
        raise ValueError(f"{name!r} is not a file name: letters, digits and the like, without a folder")
    return name


def checked_pattern(pattern: str) -> str:
    """Returns a pattern of files in the folder of a command.

    Raises:
        ValueError: It is none, or may lead out of it.
    """
    parts = pattern.split("/")
    if not all(parts) or not {".", ".."}.isdisjoint(parts) or parts.count(_ANY_FOLDERS) > 1 or "\0" in pattern:
        hint = "relative to the working folder, as `*.csv` or `out/**/*.json`, without `..`"
        raise ValueError(f"{pattern!r} is not a file pattern: it is {hint}")
    return pattern


async def place_files(call: ToolCall, files: Mapping[str, Any], scratch: Scratch) -> None:
    """Writes files and tables to the scratch folder, each under its name.

    Raises:
        ToolFailure: ``invalid_input``: one is not a reference; or as for :meth:`Scratch.fetch`.
    """
    for name, value in files.items():
        reference = call.data.reference(value)
        if reference is None:
            raise invalid_input(f"files.{name}: it is not a file or a table of this execution")
        path = await scratch.fetch(call.data, reference, name)
        if reference.columns is not None and (await asyncio.to_thread(footer_of, path)).rows != reference.rows:
            raise invalid_input(f"files.{name}: it is a part of a table; a command has whole ones")


async def collect_files(call: ToolCall, folder: str, patterns: Sequence[str], scratch: Scratch) -> dict[str, Any]:
    """Keeps the files that match a pattern; returns their references by their path in ``folder``.

    Links are not followed: the command may have made any.

    Raises:
        ToolFailure: ``limit_exceeded``: they are too many or too large; ``result_not_json``: a name is not text.
    """
    found = await asyncio.to_thread(_matching, folder, [pattern.split("/") for pattern in patterns])
    if len(found) > MAX_FILES:
        raise ToolFailure.of("limit_exceeded", f"outputs: {len(found):,} files match; at most {MAX_FILES:,} are kept")
    kept = {}
    for parts in found:
        name = "/".join(parts)
        try:
            name.encode()
        except UnicodeEncodeError:
            raise ToolFailure.of("result_not_json", f"outputs: {name!r:.200} is not a name in UTF-8") from None
        try:
            descriptor = await asyncio.to_thread(_open_beneath, folder, parts)
        except OSError as error:
            raise ToolFailure.of("result_not_json", f"outputs: {name} cannot be read: {error.strerror}") from None
        try:
            size = os.fstat(descriptor).st_size
            scratch.take(size, f"outputs: {name}")
            media_type = mimetypes.guess_type(parts[-1])[0] or _UNKNOWN
            kept[name] = await call.data.save(_content(descriptor, size), name=parts[-1], media_type=media_type)
        finally:
            os.close(descriptor)
    return kept


async def _content(descriptor: int, size: int) -> AsyncIterator[bytes]:
    """Yields the first ``size`` bytes of a file, which may still grow."""
    while size and (piece := await asyncio.to_thread(os.read, descriptor, min(_PIECE_BYTES, size))):
        size -= len(piece)
        yield piece


def _matching(folder: str, patterns: Sequence[Sequence[str]]) -> list[Parts]:
    """Returns the regular files that match a pattern, sorted.

    Raises:
        ToolFailure: ``limit_exceeded``: there are too many to search.
    """
    found, seen = [], 0
    for root, folders, names, inside in os.fwalk(folder):
        above = Path(root).relative_to(folder).parts
        seen += len(folders) + len(names)
        if seen > MAX_SEEN:
            message = f"outputs: the working folder has more than {MAX_SEEN:,} files and folders"
            raise ToolFailure.of("limit_exceeded", message)
        paths = ((*above, name) for name in names if _is_regular(name, inside))
        found += [path for path in paths if any(_fits(path, pattern) for pattern in patterns)]
    return sorted(found)


def _is_regular(name: str, inside: int) -> bool:
    try:
        return stat.S_ISREG(os.stat(name, dir_fd=inside, follow_symlinks=False).st_mode)
    except OSError:
        return False


def _fits(parts: Sequence[str], pattern: Sequence[str]) -> bool:
    if not pattern or not parts:
        return not pattern and not parts
    if pattern[0] == _ANY_FOLDERS:
        return any(_fits(parts[skipped:], pattern[1:]) for skipped in range(len(parts)))
    return fnmatchcase(parts[0], pattern[0]) and _fits(parts[1:], pattern[1:])


def _open_beneath(folder: str, parts: Parts) -> int:
    """Opens a regular file without following links anywhere below ``folder``.

    Raises:
        OSError: There is no such file, or it is a link or something else.
    """
    inside = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in parts[:-1]:
            deeper = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=inside)
            os.close(inside)
            inside = deeper
        found = os.open(parts[-1], os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=inside)
    finally:
        os.close(inside)
    if not stat.S_ISREG(os.fstat(found).st_mode):
        os.close(found)
        raise OSError(0, "it is not a regular file")
    return found
