"""``noetl-stream execution result --to``: the result of an execution and the files and tables in it, as files."""

from __future__ import annotations

import os
import re
from collections.abc import AsyncIterator, Iterable
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import Final

from noetl_stream.cli.base.output import say
from noetl_stream.cli.base.session import Session
from noetl_stream.errors import NotFound, UsageError
from noetl_stream.model.json import codec
from noetl_stream.sealing.data_references import DataReference, references_of

RESULT: Final = "result.json"
_UNFIT: Final = re.compile(r'[\x00-\x1f\x7f<>:"/\\|?*]')
MAX_NAME_BYTES: Final = 200
"""The most characters of a name, so that a number and a suffix fit."""


async def download(session: Session, execution_id: str, folder: Path, *, force: bool) -> None:
    """Writes the result into a folder, with its files and tables beside it, and prints their paths.

    Raises:
        NotFound: a file is lost.
        UsageError: a file exists, so that nothing was written, or one cannot be written.
    """
    executions = session.operations.executions
    result = (await executions.result(execution_id)).result
    names = {RESULT}
    found = {reference.key: reference for reference in references_of(result)}.values()
    chosen = [(_free_name(reference, names), reference) for reference in found]
    try:
        _prepare(folder, () if force else sorted(names))
        await _write(folder / RESULT, _once(codec.encode(result) + b"\n"))
        for name, reference in chosen:
            found_checksum = await _write(folder / name, await executions.file(execution_id, reference))
            if found_checksum != reference.checksum:
                (folder / name).unlink()
                raise NotFound(f"{reference.what} is damaged: its checksum differs")
    except OSError as error:
        raise UsageError(f"{error.filename or folder}: {error.strerror}") from None


def _prepare(folder: Path, new: Iterable[str]) -> None:
    existing = [str(folder / name) for name in new if os.path.lexists(folder / name)]
    if existing:
        hint = "choose another folder, or repeat the command with --force"
        raise UsageError(f"nothing written, because these files exist: {', '.join(existing)}", hint=hint)
    folder.mkdir(parents=True, exist_ok=True)


async def _write(file: Path, pieces: AsyncIterator[bytes]) -> str:
    """Writes a file, which gets its name once it is complete; returns its checksum as in references."""
    digest, part = sha256(), file.with_name(f".{file.name}.part")
    part.unlink(missing_ok=True)
    try:
        with part.open("xb") as written:
            async for piece in pieces:
                written.write(piece)
                digest.update(piece)
        part.replace(file)
    finally:
        part.unlink(missing_ok=True)
    say(file)
    return f"sha256:{digest.hexdigest()}"


async def _once(data: bytes) -> AsyncIterator[bytes]:
    yield data


def _free_name(reference: DataReference, taken: set[str]) -> str:
    """A free name for a file in the folder, which is added to the taken ones, whatever their case."""
    name = _UNFIT.sub("_", reference.name).strip(". ") or ("file" if reference.columns is None else "table.parquet")
    stem, dot, ending = name.rpartition(".")
    stem, ending = (stem, f".{ending[:20]}") if dot else (name, "")
    stem = stem.encode()[:MAX_NAME_BYTES].decode(errors="ignore")
    for number in count(1):
        free = f"{stem}{ending}" if number == 1 else f"{stem}-{number}{ending}"
        if free.casefold() not in {one.casefold() for one in taken}:
            taken.add(free)
            return free
    raise AssertionError
