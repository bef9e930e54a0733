"""The files of one ``python`` task at its worker, which its process requests and returns (LANGUAGE §12 *python*).

A question is a note of the job (:mod:`~noetl_stream.tools.python.line`). ``{"open": reference, "table": bool}`` is
answered with ``{path, rows}``: the path below the folder that the process reads, and the number of rows of the
table; or with ``{refused}``. ``{"save": name}`` is followed by frames with the content of a file, at last an empty one;
``{"save": "", "footer": bytes, "head": rows}`` by the footer of a Parquet file, and then by all of it. Either is
answered with the reference.
"""

from __future__ import annotations

import asyncio
import mimetypes
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

import msgspec

from noetl_stream.sealing.data_references import PARQUET
from noetl_stream.tools.contract import ToolCall, ToolFailure
from noetl_stream.tools.scratch.parquet_footer import (
    END_BYTES,
    MAX_FOOTER_BYTES,
    Footer,
    NotParquet,
    footer_length,
    footer_of,
    read_footer,
)
from noetl_stream.tools.scratch.scratch import Scratch, file_name

NextFrame = Callable[[], Awaitable[bytes]]
_SEAL: Final = b'"seal":"'
_UNKNOWN: Final = "application/octet-stream"


class FileQuestion(msgspec.Struct, frozen=True):
    """A question of a process: see the module."""

    open: dict[str, Any] | None = None
    save: str | None = None
    table: bool = False
    footer: int | None = None
    head: list[Any] = []


def has_references(fields: bytes) -> bool:
    """Returns whether a job may have references, by its JSON."""
    return _SEAL in fields


class JobFiles:
    """The files of one job.

    Args:
        fields: The job as JSON: its process may open the references in it, and no others.
        scratch: The folder in which its process reads them; ``None``: it opens none.
    """

    def __init__(self, call: ToolCall, fields: bytes, scratch: Scratch | None) -> None:
        self._call, self._fields, self._scratch = call, fields, scratch

    async def answer(self, note: bytes, frame: NextFrame) -> Any:
        """Answers a question.

        Args:
            frame: Returns the next frame of the process.

        Raises:
            MsgspecError: It is no question.
            ToolFailure: ``limit_exceeded``, ``result_lost``, ``invalid_result``.
            WorkerUnfit: There is no room on the disk of the worker.
        """
        question = _questions.decode(note)
        if question.open is not None:
            return await self._open(question.open, is_table=question.table)
        return await self._save(question, frame)

    async def _open(self, value: dict[str, Any], *, is_table: bool) -> Any:
        reference = self._call.data.reference(value)
        if reference is None or self._scratch is None or reference.seal.encode() not in self._fields:
            return {"refused": "it is not a file or a table of this execution: only its values look like one"}
        name = file_name(reference.name or "table")
        name = f"{name}.parquet" if is_table and not name.endswith(".parquet") else name
        path = await self._scratch.fetch(self._call.data, reference, name)
        try:
            rows = (await asyncio.to_thread(footer_of, path)).rows if is_table else None
        except NotParquet as error:
            return {"refused": f"it is not a table: {error}"}
        return {"path": str(path.relative_to(self._scratch.folder)), "rows": rows}

    async def _save(self, question: FileQuestion, frame: NextFrame) -> Any:
        name, footer_bytes = file_name(question.save or ""), question.footer
        if footer_bytes is None:
            media_type = mimetypes.guess_type(name)[0] or _UNKNOWN
            return await self._call.data.save(_content(frame), name=name, media_type=media_type)
        try:
            footer = await _footer(footer_bytes, frame)
            pieces = _parquet(frame, footer_bytes)
            about: dict[str, Any] = {
                "media_type": PARQUET,
                "columns": footer.columns,
                "rows": footer.rows,
                "head": question.head,
            }
            return await self._call.data.save(pieces, **about)
        except NotParquet as error:
            raise ToolFailure.of("result_not_json", f"a table cannot be kept: {error}") from None


async def _footer(size: int, frame: NextFrame) -> Footer:
    if not 0 <= size <= MAX_FOOTER_BYTES:
        raise NotParquet(f"its footer has {size:,} bytes; at most {MAX_FOOTER_BYTES:,}")
    footer = bytearray()
    while len(footer) < size:
        if not (piece := await frame()):
            raise NotParquet("its footer is cut off")
        footer += piece
    return await asyncio.to_thread(read_footer, bytes(footer))


async def _content(frame: NextFrame) -> AsyncIterator[bytes]:
    while piece := await frame():
        yield piece


async def _parquet(frame: NextFrame, footer_bytes: int) -> AsyncIterator[bytes]:
    """Yields the content of a Parquet file with a footer of this length.

    Raises:
        NotParquet: It is not a Parquet file.
    """
    end = b""
    async for piece in _content(frame):
        end = (end + piece)[-END_BYTES:]
        yield piece
    if footer_length(end) != footer_bytes:
        raise NotParquet("its footer is another one than was told")


_questions: Final = msgspec.json.Decoder(FileQuestion)
