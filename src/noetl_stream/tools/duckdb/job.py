"""Messages between a worker and its DuckDB processes, each after a big-endian length of four bytes.

A process first sends its number, once it has its folder. A job is MessagePack. The answer is frames of JSON rows, and
one last frame; the first byte of each is its kind.
"""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

from noetl_stream.model.outcome import ErrorInfo
from noetl_stream.tools.contract import ToolFailure
from noetl_stream.tools.duckdb.copies import CopiedDatabase, CopiedTable

NUMBER_BYTES: Final = 4
"""The length of a process id as the process sees it: in a namespace, the worker sees another."""
ROWS: Final = b"R"
"""The first byte of a frame that has a JSON list of rows."""
END: Final = b"E"
"""The first byte of the last frame, which has an :class:`Ending` as JSON."""
FRAME_ROW_BYTES: Final = 256 * 1024
"""About how many bytes of rows are in one frame, so that decoding one does not hold up the worker."""
COPIES_FOLDER: Final = "attached"
"""The folder with copied tables and files, within that of the process."""
DISK_FULL: Final = "disk_full"
"""The kind of the error of a process that could not write a file of its own, which is the worker's trouble."""
WRITTEN_FILE: Final = "written"
"""The file in :data:`COPIES_FOLDER` that rows are written to."""
SPILLED_FOLDER: Final = "spilled"
"""The folder in :data:`COPIES_FOLDER` for what does not fit in ``memory_limit``."""


class NewTable(msgspec.Struct, frozen=True):
    """A table to create first: the statement, and the rows as JSON text."""

    name: str
    statement: str
    rows: str


class FileSource(msgspec.Struct, frozen=True):
    """A file as a table of the task.

    Attributes:
        place: Names the table in errors.
        what: The name of the file in errors.
        file: Its path, as the process sees it.
        format: ``csv``, ``json``, ``ndjson``, ``parquet`` or ``excel``.
        packed: Whether it is gzipped.
        part: The first row and the number of rows of a table; ``None``: all.
        delimiter, header, columns: What is known of a CSV file; ``None``: it is found out. A sheet has a header by
            default.
        max_bad_rows: How many lines may be left out; ``None``: no line can.
        sheet: The name or the number of the sheet of a workbook; ``None``: the first one.
        all_rows: Whether the types of JSON are found in all rows, rather than in the first ones.
    """

    name: str
    place: str
    what: str
    file: str
    format: str
    packed: bool = False
    part: tuple[int, int] | None = None
    delimiter: str | None = None
    header: bool | None = None
    columns: dict[str, str] | None = None
    max_bad_rows: int | None = None
    sheet: str | int | None = None
    all_rows: bool = False

    def unreadable(self, what: str) -> ToolFailure:
        """Makes the failure for a file that cannot be read as the task wants it."""
        return ToolFailure.of("sql", f"{self.place}: {self.what} {what}"[:1_000], code="Conversion")


Written = Literal["parquet", "csv", "json", "ndjson", "copy"]
"""The format of rows in a file; ``copy``: text for Postgres' ``COPY``."""


class DuckdbJob(msgspec.Struct, frozen=True, kw_only=True):
    """The work of a DuckDB process for one task.

    Attributes:
        database: The database file; ``None`` for a database in memory.
        folders: Folders whose files the SQL may use.
        attached: Databases whose copied tables are in :data:`COPIES_FOLDER`.
        params: The parameters, as JSON: MessagePack has no large integers.
        memory_bytes: Private memory that the process may use in addition to what it has.
        copied: Copied tables in :data:`COPIES_FOLDER` that the SQL names without a database.
        files: Files in :data:`COPIES_FOLDER` that are tables of the task.
        into: The format of the last statement's rows in :data:`WRITTEN_FILE`; ``None``: they are the answer.
        max_file_bytes: The most bytes of a file that the process writes; 0: no bound.
    """

    database: str | None = None
    config: dict[str, str]
    folders: list[str] = []
    attached: list[CopiedDatabase] = []
    tables: list[NewTable] = []
    texts: list[str]
    params: bytes = b"null"
    idempotency_key: str = ""
    max_rows: int
    max_result_bytes: int
    memory_bytes: int
    copied: list[CopiedTable] = []
    files: list[FileSource] = []
    into: Written | None = None
    max_file_bytes: int = 0


class Ending(msgspec.Struct, frozen=True):
    """The end of an answer: the result without its rows, or an error.

    Attributes:
        is_last: The process takes no more jobs: it holds too much memory.
    """

    result: dict[str, Any]
    error: ErrorInfo | None = None
    is_last: bool = False
