"""Messages between a worker and its DuckDB processes, each behind a big-endian length of four bytes.

A process first says its number, once it has its folder. A job is MessagePack. The answer is frames of JSON rows, and
one last frame; the first byte of each says which it is.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from noetl_stream.model.outcome import ErrorInfo
from noetl_stream.tools.duckdb.copies import CopiedDatabase

NUMBER_BYTES: Final = 4
"""The length of a process id, as the process sees it: of one in a namespace, the worker sees another."""
ROWS: Final = b"R"
"""The first byte of a frame that has a JSON list of rows."""
END: Final = b"E"
"""The first byte of the last frame, which has an :class:`Ending` as JSON."""
FRAME_ROW_BYTES: Final = 256 * 1024
"""About how many bytes of rows are in one frame, so that decoding one does not hold up the worker."""
COPIES_FOLDER: Final = "attached"
"""The folder with copied tables, within that of the process."""


class NewTable(msgspec.Struct, frozen=True):
    """A table to create first: the statement, and the rows as JSON text."""

    name: str
    statement: str
    rows: str


class DuckdbJob(msgspec.Struct, frozen=True):
    """What a DuckDB process does for one task.

    Attributes:
        database: The database file; ``None`` for a database in memory.
        folders: Folders whose files the SQL may use.
        attached: Databases whose copied tables are in :data:`COPIES_FOLDER`.
        params: The parameters, as JSON: MessagePack has no large integers.
        memory_bytes: Private memory that the process may use in addition to what it has.
    """

    database: str | None
    config: dict[str, str]
    folders: list[str]
    attached: list[CopiedDatabase]
    tables: list[NewTable]
    texts: list[str]
    params: bytes
    idempotency_key: str
    max_rows: int
    max_result_bytes: int
    memory_bytes: int


class Ending(msgspec.Struct, frozen=True):
    """The end of an answer: the result without its rows, or an error.

    Attributes:
        is_last: The process takes no more jobs: it holds too much memory.
    """

    result: dict[str, Any]
    error: ErrorInfo | None = None
    is_last: bool = False
