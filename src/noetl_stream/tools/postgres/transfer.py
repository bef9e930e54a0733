"""Tables and files by reference, to and from Postgres by ``COPY`` (see ``docs/reference/tools.md``).

Postgres sends and reads CSV text, which DuckDB converts to and from Parquet. A CSV file is sent to Postgres unchanged.
Nothing is ever in memory as a whole.
"""

from __future__ import annotations

import csv
import zlib
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

from pydantic import Field

from noetl_stream.sealing.data_references import DataReference, read_reference
from noetl_stream.tools.contract import OWN_TROUBLE, ToolCall, ToolFailure, beginning
from noetl_stream.tools.duckdb.attach import FIND_TABLE, QUERY_COLUMNS, columns_of
from noetl_stream.tools.duckdb.copies import MAX_LINE_BYTES, NULL, CopiedTable
from noetl_stream.tools.duckdb.file_tables import GZIP, FileTable, Format, NamedFile
from noetl_stream.tools.duckdb.file_views import unreadable
from noetl_stream.tools.duckdb.job import WRITTEN_FILE
from noetl_stream.tools.duckdb.tables import quote_identifier
from noetl_stream.tools.http.content import BrokenBody, Unpacker
from noetl_stream.tools.inputs import Inputs, invalid_input
from noetl_stream.tools.postgres.statements import split_statements
from noetl_stream.tools.scratch.scratch import Scratch, too_large

if TYPE_CHECKING:
    from asyncpg.prepared_stmt import PreparedStatement

    from noetl_stream.tools.duckdb.tool import DuckdbTool
    from noetl_stream.tools.postgres.domain_connection import DomainConnection
    from noetl_stream.tools.postgres.pool import Connection

_ROWS: Final = "rows"
_FORMAT: Final = """
set datestyle = 'ISO'; set intervalstyle = 'postgres'; set extra_float_digits = 1; set bytea_output = 'hex'
"""
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_MAX_HEADER_BYTES: Final = 1024 * 1024


class CopyInto(Inputs):
    """Rows to load into a table."""

    table: str = Field(min_length=1, description="The table: `orders`, `sales.orders`.")
    source: Any = Field(validation_alias="from", description="The reference to a table or file.")
    columns: list[str] | None = Field(
        default=None, min_length=1, description="The columns to load. Default: those of the source."
    )
    format: Format | None = Field(default=None, description="Of a file. Default: by its media type, else by its name.")
    delimiter: str = Field(default=",", min_length=1, max_length=1, description="Of a CSV file.")
    header: bool = Field(default=True, description="Whether the first line of a CSV file names its columns.")


@dataclass(frozen=True, slots=True)
class Transfer:
    """A transfer of rows between one task's connection and files in its scratch folder."""

    call: ToolCall
    connection: Connection
    scratch: Scratch
    duckdb: DuckdbTool
    timeout_s: float | None

    async def write(self, sql: str, prepared: PreparedStatement[Any], values: Sequence[Any]) -> dict[str, Any]:
        """Runs a query, and returns the reference to its rows as a table.

        Raises:
            ToolFailure: ``limit_exceeded``; ``sql`` for values that DuckDB cannot hold.
        """
        attributes = prepared.get_attributes()
        types, names = [attribute.type.oid for attribute in attributes], [attribute.name for attribute in attributes]
        columns = await columns_of(self.connection, QUERY_COLUMNS, types, names)
        fields = [_field(column.name, is_array=column.is_array) for column in columns]
        source = await _with_literals(self.connection, sql, prepared, values)
        query = f"with {_ROWS} as ({source}\n) select {', '.join(fields)} from {_ROWS}"  # noqa: S608  # it is the author's
        await self.connection.execute(_FORMAT)
        copied = CopiedTable("into", "main", _ROWS, columns, "rows.csv")
        received = cast("DomainConnection", self.connection).received
        with (
            (self.scratch.folder / copied.file).open("wb", buffering=0) as file,
            received.at_most(MAX_LINE_BYTES, self._too_large),
        ):
            # pieces of a few kilobytes, which the system takes at once; the driver keeps a row until it is complete
            async def write(data: bytes) -> None:
                received.renew(MAX_LINE_BYTES)
                self.scratch.take(len(data), "the rows of the query")
                left = memoryview(data)
                while left:
                    with beginning("write the rows of the query", OWN_TROUBLE):
                        left = left[file.write(left) :]

            await self.connection.copy_from_query(query, output=write, format="csv", null=NULL, timeout=self.timeout_s)
        return await self.duckdb.save(self.call, self.scratch, f"from {_ROWS}", copied)

    def _too_large(self) -> ToolFailure:
        if self.scratch.left_bytes < 0:
            return too_large("the rows of the query", self.scratch.max_bytes)
        message = f"into: the query returns a row of more than {MAX_LINE_BYTES:,} bytes; select less of it"
        return ToolFailure.of("limit_exceeded", message)

    async def load(self, given: CopyInto, reference: DataReference) -> int:
        """Loads a table or file into a table of Postgres, and returns the number of its rows.

        Raises:
            ToolFailure: ``not_found``: the table does not exist; ``result_lost``; ``invalid_input``; ``sql`` for a file
                that cannot be read.
        """
        table = await self.connection.fetchrow(FIND_TABLE, given.table)
        if table is None:
            raise ToolFailure.of("not_found", f"copy.table: no table {given.table}")
        options = FileTable(file=None, format=given.format) if reference.columns is None else None
        file = NamedFile("rows", reference, options, place="copy.from", advice="write copy: { …, format: csv }")
        if file.format == "csv":
            pieces = _unpacked(self.call.data.read(reference), reference)
            names, pieces = await _header(pieces, given, reference) if given.header else (given.columns, pieces)
            about: dict[str, Any] = {"header": given.header, "delimiter": given.delimiter, "null": ""}
        else:
            source = await file.copied(self.call.data, self.scratch)
            listed = given.columns or [column.name for column in reference.columns or ()]
            query = f"from {_ROWS} select {', '.join(map(quote_identifier, listed)) or '*'}"
            written = await self.duckdb.write(self.call, self.scratch, query, "copy", source)
            names, pieces, about = written["columns"], self.scratch.read(WRITTEN_FILE), {"null": NULL}
        status = await self.connection.copy_to_table(
            table["name"],
            schema_name=table["schema"],
            source=pieces,
            columns=names,
            format="csv",
            timeout=self.timeout_s,
            **about,
        )
        server = cast("DomainConnection", self.connection).server
        self.call.data.note(server, table["whole_name"], written=True, columns=names or ())
        return int(status.rpartition(" ")[2])


def _field(name: str, *, is_array: bool) -> str:
    quoted = quote_identifier(name)
    return f"array_to_json({quoted}::text[])::text as {quoted}" if is_array else quoted


async def _with_literals(
    connection: Connection, sql: str, prepared: PreparedStatement[Any], values: Sequence[Any]
) -> str:
    """Returns the SQL with literals in place of its parameters, which ``COPY`` cannot have: Postgres formats them."""
    if not values:
        return sql
    oids = [expected.oid for expected in prepared.get_parameters()]
    names = await connection.fetchval("select array(select oid::regtype::text from unnest($1::oid[]) oid)", oids)
    quoted = ", ".join(f"quote_nullable(${place}::{name})" for place, name in enumerate(names, start=1))
    literals = await connection.fetchrow(f"select {quoted}", *values)
    assert literals is not None
    pieces, position = [], 0
    for parameter in split_statements(sql)[0].parameters:
        place = int(parameter.name) - 1
        pieces += [sql[position : parameter.start], f"({literals[place]}::{names[place]})"]
        position = parameter.end
    return "".join([*pieces, sql[position:]])


def reference_of(call: ToolCall, given: CopyInto) -> DataReference:
    """Returns the reference in ``copy.from``, given itself or as the result of the task that made it.

    Raises:
        ToolFailure: ``invalid_input``.
    """
    value = given.source
    if isinstance(value, Mapping) and read_reference(value) is None:
        value = value.get("table") or value.get("file")
    reference = call.data.reference(value)
    if reference is None:
        raise invalid_input(
            "copy.from: is not a reference that this task can open: it was changed, made by another execution, or "
            "is data that looks like one"
        )
    return reference


async def _unpacked(pieces: AsyncIterator[bytes], reference: DataReference) -> AsyncIterator[bytes]:
    """Yields the text of a CSV file, without gzip and byte order mark."""
    unpacker: Unpacker | None = None
    is_first = True
    try:
        async for piece in pieces:
            if is_first and unpacker is None:
                if why := unreadable(piece):
                    raise ToolFailure.of("sql", f"copy.from: {reference.what} {why}")
                unpacker = Unpacker("gzip") if piece.startswith(GZIP) else None
            for text in (piece,) if unpacker is None else unpacker.feed(piece):
                yield text.removeprefix(_BYTE_ORDER_MARK) if is_first else text
                is_first = False
        if unpacker is not None:
            unpacker.finish()
    except (BrokenBody, zlib.error):
        raise ToolFailure.of("sql", f"copy.from: {reference.what} ends too early, or is not gzip data") from None


async def _header(
    pieces: AsyncIterator[bytes], given: CopyInto, reference: DataReference
) -> tuple[list[str], AsyncIterator[bytes]]:
    """Returns the names in the first line of a CSV file, and all of its text."""
    read = bytearray()
    async for piece in pieces:
        read += piece
        if b"\n" in piece or len(read) > _MAX_HEADER_BYTES:
            break
    line = bytes(read).partition(b"\n")[0].rstrip(b"\r").decode(errors="replace")
    names = next(csv.reader([line], delimiter=given.delimiter), [])
    if not names:
        raise ToolFailure.of("sql", f"copy.from: {reference.what} is empty")
    if given.columns is not None and given.columns != names:
        raise invalid_input(
            f"copy.columns: a CSV file is loaded with all of its columns, and {reference.what} has {', '.join(names)}"
        )

    async def all_pieces() -> AsyncIterator[bytes]:
        yield bytes(read)
        async for piece in pieces:
            yield piece

    return names, all_pieces()
