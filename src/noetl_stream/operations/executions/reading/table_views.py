"""Views of stored tables: columns, value counts and first rows, from a bounded read of the Parquet file.
A DuckDB process reads the footer and the first row groups within the bound, from a sparse copy of the file.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Awaitable, Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from noetl_stream.errors import NotFound, TooBusy
from noetl_stream.ports.operations.reading.table_views import (
    MAX_COLUMNS,
    StoredTableDocument,
    TableColumnDocument,
    ValueCountDocument,
)
from noetl_stream.sealing.data_references import PART_BYTES, DataReference
from noetl_stream.settings.children import ChildSettings
from noetl_stream.tools.children.frames import add_length
from noetl_stream.tools.children.launcher import Launcher
from noetl_stream.tools.contract import ToolFailure, WorkerUnfit
from noetl_stream.tools.duckdb.job import COPIES_FOLDER, DuckdbJob, FileSource
from noetl_stream.tools.duckdb.tables import quote_identifier
from noetl_stream.tools.duckdb.warm_processes import DuckdbProcesses, ProcessDied
from noetl_stream.tools.scratch.parquet_footer import END_BYTES, NotParquet, footer_length
from noetl_stream.tools.scratch.scratch import ScratchFolders

SAMPLE_BYTES: Final = 48 * 1024 * 1024
"""The maximum size of the row groups that are read, in bytes. The footer is extra."""
SAMPLE_ROWS: Final = 250_000
"""The maximum number of rows in which values are counted."""
COLUMNS_AT_ONCE: Final = 10
"""The maximum number of columns in one query. DuckDB reserves memory for each."""
MAX_FOOTER_BYTES: Final = 8 * 1024 * 1024
VIEW_S: Final = 20.0
"""The time limit of a view, in seconds."""
COUNT_S: Final = 8.0
"""The time after which no further columns are counted, in seconds."""
MAX_BARS: Final = 20
MAX_CELLS: Final = 2_000
MAX_TEXT: Final = 200
"""The maximum length of a shown value, in characters."""

_MEMORY_BYTES: Final = 256 * 1024 * 1024
_BESIDE_BYTES: Final = 256 * 1024 * 1024
_MAX_RESULT_BYTES: Final = 8 * 1024 * 1024
_MAX_GROUPS: Final = 100_000
_TABLE: Final = "t"
_FILE: Final = f"{COPIES_FOLDER}/table.parquet"
_CONFIG: Final = {
    "memory_limit": f"{_MEMORY_BYTES}B",
    "threads": "1",  # reads row groups one after the other
    "python_enable_replacements": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_persistent_secrets": "false",
    "temp_directory": "",
}
_WHOLE: Final = frozenset({"TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT"})
_INTEGERS: Final = _WHOLE | {f"U{name}" for name in _WHOLE}
_TIMES: Final = ("DATE", "TIMESTAMP")
_UNORDERED: Final = ("BLOB", "INTERVAL", "BIT", "VARIANT", "GEOMETRY")

ReadPart = Callable[[int], Awaitable[bytes]]


class _Span(NamedTuple):
    """Consecutive row groups: the index of the first row, the number of rows, and the byte range."""

    first_row: int
    rows: int
    begin: int
    end: int


class _Column(NamedTuple):
    """A column: its index, and the SQL to compare and count its values."""

    at: int
    name: str
    type: str

    @property
    def quoted(self) -> str:
        return quote_identifier(self.name)

    @property
    def is_nested(self) -> bool:
        return self.type.endswith("]") or self.type.startswith(("STRUCT", "MAP", "UNION", "TUPLE", *_UNORDERED))

    @property
    def is_time(self) -> bool:
        return self.type.startswith(_TIMES)

    @property
    def number(self) -> str | None:
        """The SQL expression of its values as numbers; ``None`` if the type is not numeric."""
        if self.is_time:
            return f"epoch({self.quoted})::double"
        is_number = self.type in _INTEGERS or self.type in ("FLOAT", "DOUBLE") or self.type.startswith("DECIMAL")
        return f"{self.quoted}::double" if is_number else None


class TableViews:
    """Makes views of tables, one at a time. A view, with the wait for its turn, takes at most :data:`VIEW_S`."""

    def __init__(self) -> None:
        self._turn = asyncio.Semaphore(1)

    async def view(
        self, execution_id: str, reference: DataReference, read: ReadPart, limit: int
    ) -> StoredTableDocument:
        """Makes a view of a table.

        Args:
            read: Returns a part of the file, by number.
            limit: The maximum number of first rows.

        Raises:
            NotFound: The file is not a table.
            BlobMissing: A part is missing.
            TooBusy: The view took too long, or no process could be started.
        """
        try:
            async with asyncio.timeout(VIEW_S), self._turn:
                return await _viewed(execution_id, reference, read, limit)
        except TimeoutError:
            raise TooBusy(f"{reference.what} was not read within {VIEW_S:g} s", 5.0, hint="try again") from None
        except WorkerUnfit as unfit:
            raise TooBusy(f"cannot look at {reference.what}: {unfit}", 5.0) from None
        except NotParquet as error:
            raise NotFound(f"{reference.what} is not a table: {error}", hint="download the file") from None
        except ToolFailure as failure:
            why = failure.error.message
            raise NotFound(f"{reference.what} is not a readable table: {why}", hint="download the file") from None


async def _viewed(execution_id: str, reference: DataReference, read: ReadPart, limit: int) -> StoredTableDocument:
    folders, launcher = ScratchFolders(), Launcher(_CHILD, server="noetl_stream.tools.duckdb.child")
    processes = DuckdbProcesses(launcher)
    try:
        async with folders.folder() as scratch:
            stored = _PartialFile(scratch.folder, reference, read)
            await stored.write_footer()
            return await _View(processes, stored, execution_id, reference).document(limit)
    finally:
        await processes.close()
        await folders.close()


class _PartialFile:
    """A sparse copy of the file of a table: it holds only the fetched parts."""

    def __init__(self, folder: Path, reference: DataReference, read: ReadPart) -> None:
        self.folder = folder
        self._size = reference.size
        self._read = read
        self._there: dict[int, int] = {}

    async def write_footer(self) -> None:
        """Fetches the footer.

        Raises:
            NotParquet: The file has no footer, or one that is too long.
        """
        await asyncio.to_thread(self._make)
        if self._size < END_BYTES:
            raise NotParquet("it is too short")
        await self.fetch(self._size - END_BYTES, self._size)
        length = footer_length(await asyncio.to_thread(self._end))
        if length > min(MAX_FOOTER_BYTES, self._size - END_BYTES):
            raise NotParquet("its footer is too large, or cut off")
        await self.fetch(self._size - END_BYTES - length, self._size)

    async def fetch(self, begin: int, end: int) -> None:
        """Fetches the parts that contain a byte range."""
        for number in range(begin // PART_BYTES, -(-end // PART_BYTES)):
            if number not in self._there:
                part = await self._read(number)
                self._there[number] = len(part)
                await asyncio.to_thread(self._write, number * PART_BYTES, part)

    @property
    def _path(self) -> Path:
        return self.folder / Path(_FILE).name

    def _make(self) -> None:
        with self._path.open("xb") as file:
            file.truncate(self._size)

    def _write(self, at: int, part: bytes) -> None:
        with self._path.open("r+b") as file:
            file.seek(at)
            file.write(part)

    def _end(self) -> bytes:
        with self._path.open("rb") as file:
            file.seek(-END_BYTES, 2)
            return file.read()


class _View:
    """The view of one table."""

    def __init__(
        self, processes: DuckdbProcesses, stored: _PartialFile, execution_id: str, reference: DataReference
    ) -> None:
        self._processes, self._stored = processes, stored
        self._execution_id, self._reference = execution_id, reference

    async def document(self, limit: int) -> StoredTableDocument:
        """Returns the view as a document."""
        described = await self._ask(f"select column_name as name, column_type as type from (describe {_TABLE})")
        columns = [_Column(at, one["name"], one["type"]) for at, one in enumerate(described[:MAX_COLUMNS])]
        groups = await self._ask(_GROUPS)
        all_rows = sum(int(one["rows"]) for one in groups)
        rows = all_rows if self._reference.rows is None else self._reference.rows
        span = _span(groups, self._reference.first, rows)
        known = {one["at"]: one for one in await self._ask(_known_query(columns))} if rows == all_rows else {}
        found = _Sample(0, {}, {}, [])
        note = ""
        if span is None and rows:
            note = f"its rows are not read: the first group of them has more than {SAMPLE_BYTES:,} bytes"
        elif span is not None:
            try:
                await self._stored.fetch(span.begin, span.end)
                found = await self._sample(columns, span, rows, limit)
            except ToolFailure as failure:
                note = f"its rows are not read: {failure.error.message}"
        if not note and found.rows < rows:
            note = f"values are counted in the first {found.rows:,} of {rows:,} rows"
        if found.rows and found.columns < len(columns):
            note = "; ".join(filter(None, (note, f"only those of the first {found.columns} columns are counted")))
        return StoredTableDocument(
            execution_id=self._execution_id,
            rows=rows,
            rows_read=found.rows,
            columns=[_column(one, known.get(one.at), found) for one in columns],
            columns_left_out=len(described) - len(columns),
            first_rows=found.first_rows,
            note=note,
        )

    async def _sample(self, columns: Sequence[_Column], span: _Span, rows: int, limit: int) -> _Sample:
        begin = max(span.first_row, self._reference.first)
        end = min(span.first_row + span.rows, self._reference.first + rows)
        part = (begin, min(end - begin, SAMPLE_ROWS))
        cells = ", ".join(f"left({one.quoted}::varchar, {MAX_TEXT}) as c{one.at}" for one in columns)
        limit = min(limit, MAX_CELLS // max(1, len(columns)))
        first = await self._ask(f"select {cells} from {_TABLE} limit {limit}", part) if columns else []
        facts: dict[int, dict[str, Any]] = {one.at: {} for one in columns}
        counts: dict[int, list[ValueCountDocument]] = {}
        loop = asyncio.get_running_loop()
        ends_s, counted_columns = loop.time() + COUNT_S, 0
        while counted_columns < len(columns) and loop.time() < ends_s:
            some = columns[counted_columns : counted_columns + COLUMNS_AT_ONCE]
            counted_columns += len(some)
            for row in await self._ask(_facts_query(some), part):
                for name, value in row.items():
                    fact, _, of = name.partition("_")
                    facts[int(of)][fact] = value
            counters = [counter for one in some if (counter := _counter_of(one, facts[one.at])) is not None]
            counted = await self._ask(" union all ".join(one.query for one in counters), part)
            for counter in counters:
                counts[counter.column.at] = counter.counts(
                    [(one["bar"], one["value"], int(one["n"])) for one in counted if one["at"] == counter.column.at]
                )
        return _Sample(part[1], facts, counts, [list(row.values()) for row in first], counted_columns)

    async def _ask(self, query: str, part: tuple[int, int] | None = None) -> list[dict[str, Any]]:
        """Returns the rows of a query over the table, or over a range of its rows."""
        if not query:
            return []
        job = DuckdbJob(
            config=_CONFIG,
            texts=[query],
            max_rows=_MAX_GROUPS,
            max_result_bytes=_MAX_RESULT_BYTES,
            memory_bytes=_MEMORY_BYTES + _BESIDE_BYTES,
            files=[FileSource(_TABLE, "the table", self._reference.what, _FILE, "parquet", part=part)],
        )
        frame = add_length(msgspec.msgpack.encode(job))
        try:
            found: list[dict[str, Any]] = (await self._processes.run(job, frame, self._stored.folder))["rows"]
        except ProcessDied as died:
            raise ToolFailure.of("crashed", f"the process that reads it died ({died})") from None
        return found


class _Sample(NamedTuple):
    """The findings in the rows that were read: facts and counts by the index of the column."""

    rows: int
    facts: dict[int, dict[str, Any]]
    counts: dict[int, list[ValueCountDocument]]
    first_rows: list[list[str | None]]
    columns: int = 0


class _Counter(NamedTuple):
    """Counts the values of a column: in a histogram from ``low`` with bars of ``width``, or each distinct value."""

    column: _Column
    low: float
    width: float
    bars: int

    @property
    def query(self) -> str:
        column, number = self.column, self.column.number
        if number is None or not self.bars:
            value = f"left({column.quoted}::varchar, {MAX_TEXT})"
            given = f"select {value} as value, count(*) as n from {_TABLE} where {column.quoted} is not null"
            most_frequent = f"{given} group by 1 order by 2 desc, 1 limit {MAX_BARS}"
            return f"(select {column.at} as at, 0 as bar, value, n from ({most_frequent}))"
        bar = f"least({self.bars - 1}, greatest(0, floor(({number} - {self.low!r}) / {self.width!r})))::integer"
        given = f"from {_TABLE} where {column.quoted} is not null and isfinite({number})"
        return f"(select {column.at} as at, {bar} as bar, '' as value, count(*) as n {given} group by 2)"

    def counts(self, found: Sequence[tuple[int, str, int]]) -> list[ValueCountDocument]:
        """Returns the counts from the rows of the query."""
        if not self.bars:
            says_nothing = len(found) == MAX_BARS and all(rows == 1 for *_, rows in found)
            return [] if says_nothing else [ValueCountDocument(value, value, rows) for _, value, rows in found]
        rows = {bar: count for bar, _, count in found}
        edges = [self._text(self.low + bar * self.width) for bar in range(self.bars + 1)]
        return [ValueCountDocument(edges[bar], edges[bar + 1], rows.get(bar, 0)) for bar in range(self.bars)]

    def _text(self, value: float) -> str:
        if self.column.is_time:
            moment = datetime.fromtimestamp(0, UTC) + timedelta(seconds=value)
            is_day = self.column.type == "DATE" and self.width % 86_400 == 0
            return moment.date().isoformat() if is_day else moment.replace(tzinfo=None).isoformat(timespec="seconds")
        return f"{value:.0f}" if self.column.type in _INTEGERS else f"{value:.6g}"


def _counter_of(column: _Column, facts: dict[str, Any]) -> _Counter | None:
    """Returns the counter for the values of a column; ``None`` if they cannot be counted."""
    if column.is_nested or not facts:
        return None
    if column.number is None:
        return _Counter(column, 0.0, 0.0, 0)
    low, high = facts["least"], facts["most"]
    if low is None or high is None:
        return None
    unit = 1.0 if column.type in _INTEGERS else 86_400.0 if column.type == "DATE" else 0.0
    if low == high or high - low < unit * MAX_BARS / 2:
        return _Counter(column, low, unit, 0)
    width = (high - low) / MAX_BARS
    if unit:
        width = math.ceil((high - low + unit) / unit / MAX_BARS) * unit
    bars = min(MAX_BARS, math.floor((high - low) / width) + 1) if unit else MAX_BARS
    counter = _Counter(column, low, width, bars)
    with contextlib.suppress(OverflowError, ValueError):  # years before 1 or after 9999
        if math.isfinite(width) and counter.counts([]):
            return counter
    return None


def _span(groups: Sequence[dict[str, Any]], first: int, rows: int) -> _Span | None:
    """Returns the row groups to read: from the one that contains row ``first``, as many as fit the bound."""
    found: _Span | None = None
    for group, number in _numbered(groups):
        if number + int(group["rows"]) <= first or number >= first + rows:
            continue
        begin, end = int(group["first_byte"]), int(group["first_byte"]) + int(group["bytes"])
        wanted = _Span(number, int(group["rows"]), begin, end)
        if found is not None:
            wanted = _Span(found.first_row, found.rows + wanted.rows, min(found.begin, begin), max(found.end, end))
        if wanted.end - wanted.begin > SAMPLE_BYTES:
            break
        found = wanted
        if number + int(group["rows"]) - max(found.first_row, first) >= SAMPLE_ROWS:
            break
    return found


def _numbered(groups: Sequence[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], int]]:
    """Yields each row group with the index of its first row."""
    number = 0
    for group in groups:
        yield group, number
        number += int(group["rows"])


_OFFSET: Final = "least(coalesce(nullif(dictionary_page_offset, 0), data_page_offset), data_page_offset)"
_GROUPS: Final = (
    f"select row_group_id as id, any_value(row_group_num_rows) as rows, min({_OFFSET}) as first_byte, "
    f"max({_OFFSET} + total_compressed_size) - min({_OFFSET}) as bytes "
    f"from parquet_metadata('{_FILE}') group by 1 order by 1"
)


def _known_query(columns: Sequence[_Column]) -> str:
    """Returns the query of the footer's statistics for columns that are not nested."""
    found = []
    for column in (one for one in columns if not one.is_nested):
        name = "'" + column.name.replace("'", "''") + "'"
        low, high = (
            (f"min(try_cast(stats_min_value as {column.type}))", f"max(try_cast(stats_max_value as {column.type}))")
            if column.number is not None
            else ("null", "null")  # for text, the footer has prefixes at most
        )
        is_known = "count(stats_null_count) = count(*)"
        has_all = "count(stats_min_value) = count(*) filter (stats_null_count < num_values)"
        found.append(
            f"(select {column.at} as at, case when {is_known} then sum(stats_null_count)::bigint end as nulls, "
            f"case when {has_all} then {low}::varchar end as low, case when {has_all} then {high}::varchar end as high "
            f"from known where path_in_schema = {name})"
        )
    if not found:
        return ""
    kept = "path_in_schema, num_values, stats_null_count, stats_min_value, stats_max_value"
    return f"with known as materialized (select {kept} from parquet_metadata('{_FILE}')) {' union all '.join(found)}"


def _facts_query(columns: Sequence[_Column]) -> str:
    """Returns the query of the facts about columns, in one scan of the rows that were read."""
    found = []
    for column in columns:
        name, number = column.quoted, column.number
        low, high = ("null", "null") if column.is_nested else (f"min({name})::varchar", f"max({name})::varchar")
        finite = "" if number is None else f" filter (isfinite({number}))"
        least, most = ("null", "null") if number is None else (f"min({number}){finite}", f"max({number}){finite}")
        facts = {
            "nulls": f"count(*) - count({name})",
            "low": f"left({low}, {MAX_TEXT})",
            "high": f"left({high}, {MAX_TEXT})",
            "least": f"{least}::double",
            "most": f"{most}::double",
        }
        found += [f"{expression} as {fact}_{column.at}" for fact, expression in facts.items()]
    return f"select {', '.join(found)} from {_TABLE}" if found else ""


def _column(column: _Column, known: dict[str, Any] | None, found: _Sample) -> TableColumnDocument:
    read = found.facts.get(column.at, {})
    is_whole = known is not None and known["nulls"] is not None and (known["low"] is not None or column.number is None)
    facts = known if is_whole and known is not None else read
    return TableColumnDocument(
        column=column.name,
        type=column.type,
        nulls=facts.get("nulls"),
        low=facts.get("low") or read.get("low"),
        high=facts.get("high") or read.get("high"),
        whole=is_whole,
        counts=found.counts.get(column.at, []),
    )


_CHILD: Final = ChildSettings(user="worker", memory_bytes=_MEMORY_BYTES + 2 * _BESIDE_BYTES, cpu_s=60)
