"""Runs one DuckDB task, in a process for such tasks: tables, statements, rows."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import duckdb
import msgspec

from noetl_stream.sealing.data_references import HEAD_ROWS, fitting_rows
from noetl_stream.settings.tools import MAX_SCRATCH_BYTES_VARIABLE
from noetl_stream.tools import sql
from noetl_stream.tools.contract import ToolFailure
from noetl_stream.tools.duckdb.column_values import Carrier, carriers_of, is_same, read_rows
from noetl_stream.tools.duckdb.copies import copied_rows, load
from noetl_stream.tools.duckdb.file_views import make_view
from noetl_stream.tools.duckdb.job import COPIES_FOLDER, DISK_FULL, FRAME_ROW_BYTES, WRITTEN_FILE, DuckdbJob, Written
from noetl_stream.tools.duckdb.syntax import creates_secret
from noetl_stream.tools.duckdb.tables import quote_identifier
from noetl_stream.tools.duckdb.workbook import text_file
from noetl_stream.tools.duckdb.written import copy_statement
from noetl_stream.tools.inputs import invalid_input

_COUNTED: Final = ["Count"]
_ATTACHES_A_FILE: Final = re.compile(
    r"\s*attach\s+(database\s+)?(if\s+not\s+exists\s+)?'(?!:memory:)[^']", re.IGNORECASE
)
_MESSAGE_CHARACTERS: Final = 1_000
_ANY_INTEGER_BITS: Final = 64
_NOT_HELD: Final = (
    "DuckDB would change it: values of a list have one type, and integers at most 128 bits; "
    "pass text with JSON, and write $name::json"
)
_INSTALL: Final = "\n\nPlease try installing"
"""The text with which DuckDB's advice on an extension begins."""
_LARGER_OBJECTS: Final = ' Try increasing "maximum_object_size".'
"""DuckDB's advice on large JSON objects, removed from messages: a task cannot follow it."""
_WRITTEN: Final = f"{COPIES_FOLDER}/{WRITTEN_FILE}"
_CSV_LINE: Final = "CSV Error on Line: "
_CSV_FILE: Final = "  file = "
_CSV_REASONS: Final = ("Error when ", "Expected Number ", "Value with ", "Maximum line ", "Invalid ")
"""The beginning of the line in DuckDB's message with the reason why it cannot read a line of a file."""
_OF_THE_DISK: Final = {os.strerror(errno.ENOSPC): DISK_FULL, os.strerror(errno.EFBIG): "limit_exceeded"}
_FIRST_ROWS: Final = 16
_MOST_ROWS: Final = 2_048
"""The number of rows that are fetched at once, at first and at most: fewer if they are long."""


class SessionResult(NamedTuple):
    """The result of a task: its rows as lists of JSON, and the rest."""

    rows: list[bytes]
    rest: dict[str, Any]


class DuckdbSession:
    """The connection of one task."""

    def __init__(self, job: DuckdbJob) -> None:
        self._job = job
        self._connection: duckdb.DuckDBPyConnection | None = None

    def run(self) -> SessionResult:
        """Creates the tables, runs the statements in one transaction, and returns the result.

        Raises:
            ToolFailure: ``sql``, ``syntax``, ``not_allowed``, ``connection`` (the file), ``result_too_large``,
                ``result_not_json``, ``invalid_input``.
        """
        job = self._job
        params: sql.Params = msgspec.json.decode(job.params)
        connection = self._connect()
        try:
            self._lock_down()
            statements = _statements(connection, job.texts)
            _refuse_extensions(statements)
            if job.database is not None:
                _refuse_shared(statements)
            sql.check_params(params, [(one.query, [str(name) for name in one.named_parameters]) for one in statements])
            self._check_held(params)
            connection.execute("begin")
            connection.execute("set variable idempotency_key = $1", [job.idempotency_key])
            for table in job.tables:
                self._execute(table.statement, {"1": table.rows}, f"tables.{table.name}")
            result = self._results(statements, params)
            self._execute("commit", {}, "at commit")
            return result
        except duckdb.Error as error:
            raise _failure(error, "duckdb") from None
        except ToolFailure as failure:
            raise _with_names(failure, job) from None
        finally:
            connection.close()  # which rolls back

    def _connect(self) -> duckdb.DuckDBPyConnection:
        database = self._job.database
        try:
            connection = duckdb.connect(database or ":memory:", config=dict(self._job.config))
        except (duckdb.OperationalError, duckdb.ConnectionException) as error:
            # Another process has the file open.
            message = f"cannot open database {database!r}: {message_of(error)}"
            raise ToolFailure.of("connection", message, retryable=True) from None
        except duckdb.Error as error:
            raise invalid_input(f"DuckDB rejects the knobs or the database: {message_of(error)}") from None
        self._connection = connection
        return connection

    def _lock_down(self) -> None:
        """Disables files, extensions, the network and settings. Attached databases are loaded first."""
        connection = self._connection
        assert connection is not None
        for database in self._job.attached:
            load(database, COPIES_FOLDER, partial(self._run_query, f"attach.{database.alias}"))
        for table in self._job.copied:
            query = partial(self._run_query, table.place)
            query(f"create temp view {quote_identifier(table.name)} as {copied_rows(table, COPIES_FOLDER, query)}")
        for file in self._job.files:
            make_view(file, partial(self._run_query, file.place))
        # Otherwise text, days and hours of a time with a zone would depend on the machine.
        connection.execute("set global timezone = 'UTC'")
        connection.execute("set allowed_directories = $1", [self._job.folders])
        connection.execute("set allowed_paths = $1", [self._paths()])
        connection.execute("set enable_external_access = false")
        connection.execute("set lock_configuration = true")

    def _paths(self) -> list[str]:
        """Returns the files that views read and the last statement is written to: the task's own copies."""
        copied = [f"{COPIES_FOLDER}/{table.file}" for table in self._job.copied]
        files = [text_file(one) if one.format == "excel" else one.file for one in self._job.files]
        return [*copied, *files, *([_WRITTEN] if self._job.into else [])]

    def _run_query(self, place: str, query: str) -> list[tuple[Any, ...]]:
        rows: list[tuple[Any, ...]] = self._execute(query, {}, place).fetchall()
        return rows

    def _results(self, statements: Sequence[Any], params: sql.Params) -> SessionResult:
        runs: list[sql.StatementRun] = []
        returned: _ReturnedRows | None = None
        for number, statement in enumerate(statements, start=1):
            values = {name: sql.value_of(params, str(name)) for name in statement.named_parameters}
            if self._job.into is not None and number == len(statements):
                return self._write(number, statement, values, runs, self._job.into)
            run, rows = self._statement(number, statement, values)
            runs.append(run)
            returned = rows or returned
        rest = sql.result_of(None, runs)
        del rest["rows"]
        if returned is None:
            return SessionResult([], rest)
        if returned.not_json is not None:
            raise returned.not_json
        return SessionResult(returned.encoded, {**rest, "row_count": returned.count, "columns": returned.columns})

    def _check_held(self, params: sql.Params) -> None:
        """Refuses a parameter that DuckDB would change, such as a list with values of several types."""
        assert self._connection is not None
        given = {f"[{at}]": it for at, it in enumerate(params)} if isinstance(params, list) else params or {}
        for name, value in given.items():
            if isinstance(value, list | dict) or (isinstance(value, int) and value.bit_length() >= _ANY_INTEGER_BITS):
                try:
                    held = self._connection.execute("select $1", [value]).fetchall()[0][0]
                except duckdb.Error:
                    held = None
                if not is_same(value, held):
                    place = f"params{name}" if isinstance(params, list) else f"params.{name}"
                    raise invalid_input(f"{place}: {_NOT_HELD}")

    def _statement(
        self, number: int, statement: Any, values: dict[str, Any]
    ) -> tuple[sql.StatementRun, _ReturnedRows | None]:
        place = f"statement {number}"
        command = _command(statement)
        selected = self._with_carriers(statement.query, values, place) if command == "SELECT" else None
        connection = self._execute(statement if selected is None else selected[1], values, place)
        columns = [str(column[0]) for column in connection.description or ()]
        if not _returns_rows(command, columns, str(statement.query)):
            counted = _fetch(connection, 1, place)
            return sql.StatementRun(command, int(counted[0][0]) if counted and columns == _COUNTED else None), None
        carriers = carriers_of(it[1] for it in connection.description or ()) if selected is None else selected[0]
        sql.check_columns(columns, number)
        rows = _ReturnedRows(columns)
        wanted = min(_FIRST_ROWS, self._job.max_rows + 1)
        while batch := _fetch(connection, wanted, place):
            rows.add(read_rows(batch, carriers))
            if rows.count > self._job.max_rows:
                raise sql.too_many_rows(number, self._job.max_rows)
            if rows.size > self._job.max_result_bytes:
                raise sql.too_many_bytes(number, self._job.max_result_bytes)
            wanted = min(rows.fitting(FRAME_ROW_BYTES), self._job.max_rows + 1 - rows.count, _MOST_ROWS)
        return sql.StatementRun(command, rows.count), rows

    def _write(
        self, number: int, statement: Any, values: dict[str, Any], runs: list[sql.StatementRun], into: Written
    ) -> SessionResult:
        """Writes the rows of the last statement, and returns the result without them."""
        place, command = f"statement {number}", _command(statement)
        query = str(statement.query).rstrip().rstrip(";")
        connection = self._connection
        assert connection is not None
        try:
            if command != "SELECT":
                raise duckdb.ParserException
            described = connection.execute(f"describe {query}", values or None).fetchall()
        except duckdb.ParserException:
            message = f"{place}: with `into`, the last statement must be a query, and this is {command}"
            raise invalid_input(message) from None
        except duckdb.Error as error:
            raise _failure(error, place) from None
        columns = [(str(row[0]), connection.type(str(row[1]))) for row in described]
        names = [name for name, _ in columns]
        sql.check_columns(names, number)
        ((count,),) = self._execute(copy_statement(query, columns, into, _WRITTEN), values, place).fetchall()
        rest = sql.result_of(None, [*runs, sql.StatementRun(command, count)])
        del rest["rows"]
        if into == "parquet":
            stored = self._run_query(place, f"describe from read_parquet('{_WRITTEN}')")
            rest["stored"] = [{"name": row[0], "type": row[1]} for row in stored]
            rest["head"] = self._head(number)
        return SessionResult([], {**rest, "row_count": count, "columns": names})

    def _head(self, number: int) -> list[Any]:
        """Returns the first rows of the written table, as many as templates may read."""
        assert self._connection is not None
        [statement] = self._connection.extract_statements(f"from read_parquet('{_WRITTEN}') limit {HEAD_ROWS}")
        try:
            _, rows = self._statement(number, statement, {})
        except ToolFailure:  # the rows are too long
            return []
        encoded = [] if rows is None or rows.not_json is not None else rows.encoded
        return fitting_rows([row for batch in encoded for row in msgspec.json.decode(batch)])

    def _with_carriers(self, query: str, values: dict[str, Any], place: str) -> tuple[dict[int, Carrier], str] | None:
        """Returns the carriers of a query's columns, by index, and the query with them; ``None`` if it needs none."""
        connection = self._connection
        assert connection is not None
        try:
            described = connection.execute(f"describe {query}", values or None).fetchall()
        except duckdb.ParserException:  # there are forms of a query that cannot be described
            return None
        except duckdb.Error as error:
            raise _failure(error, place) from None
        names = [str(row[0]) for row in described]
        carriers = carriers_of(connection.type(str(row[1])) for row in described)
        if not carriers or len(set(names)) < len(names):
            return None
        casts = [
            f"cast({quote_identifier(names[at])} as {it.kind}) as {quote_identifier(names[at])}"
            for at, it in carriers.items()
        ]
        return carriers, f"select * replace ({', '.join(casts)}) from ({query.rstrip().rstrip(';')}\n)"

    def _execute(self, statement: Any, values: dict[str, Any], place: str) -> duckdb.DuckDBPyConnection:
        assert self._connection is not None
        try:
            return self._connection.execute(statement, values) if values else self._connection.execute(statement)
        except duckdb.Error as error:
            raise _failure(error, place) from None


class _ReturnedRows:
    """The rows of a statement, as JSON.

    Attributes:
        encoded: Lists of rows.
        count: The number of rows.
        size: Their bytes.
        not_json: The failure for the first value that JSON cannot hold. It matters only if these rows are the result.
    """

    def __init__(self, columns: list[str]) -> None:
        self.columns = columns
        self.encoded: list[bytes] = []
        self.count = 0
        self.size = len(msgspec.json.encode(columns))
        self.not_json: ToolFailure | None = None

    def add(self, rows: Sequence[Sequence[Any]]) -> None:
        """Adds rows as DuckDB's library gave them, read by their carriers."""
        first, self.count = self.count, self.count + len(rows)
        if self.not_json is not None:
            return
        try:
            batch = msgspec.json.encode(sql.plain_rows(self.columns, rows, first))
        except ToolFailure as failure:
            self.not_json = failure
            self.encoded.clear()
            return
        self.encoded.append(batch)
        self.size += len(batch)

    def fitting(self, size: int) -> int:
        """Returns how many rows of the present average length fit into ``size`` bytes, at least 1."""
        return max(1, size * self.count // self.size)


def _fetch(connection: duckdb.DuckDBPyConnection, count: int, place: str) -> list[tuple[Any, ...]]:
    try:
        rows: list[tuple[Any, ...]] = connection.fetchmany(count)
    except duckdb.InvalidInputException as error:
        if "pytz" not in str(error):
            raise _failure(error, place) from None
        message = f"{place}: a time with a zone cannot be read here; cast it to text"
        raise ToolFailure.of("result_not_json", message) from None
    except duckdb.Error as error:
        raise _failure(error, place) from None
    return rows


def _statements(connection: duckdb.DuckDBPyConnection, texts: Iterable[str]) -> list[Any]:
    try:
        statements = [statement for text in texts for statement in connection.extract_statements(text)]
    except duckdb.Error as error:
        raise _failure(error, "command") from None
    if not statements:
        raise invalid_input("command: has no statements")
    return statements


def _refuse_shared(statements: Iterable[Any]) -> None:
    """Refuses statements about what tasks on one file would share beyond the file: databases in memory and secrets
    belong to DuckDB's instance of it, not to a connection.
    """
    for number, statement in enumerate(statements, start=1):
        if _command(statement) == "ATTACH" and not _ATTACHES_A_FILE.match(statement.query):
            message = f"statement {number}: with `database`, attach only files by their names; use temporary tables"
            raise ToolFailure.of("not_allowed", message)
        if creates_secret(statement.query):
            message = f"statement {number}: with `database`, tasks of other executions could use this secret"
            raise ToolFailure.of("not_allowed", message)


def _refuse_extensions(statements: Iterable[Any]) -> None:
    for number, statement in enumerate(statements, start=1):
        if _command(statement) == "LOAD":
            raise ToolFailure.of("not_allowed", f"statement {number}: tasks cannot install or load extensions")


def _command(statement: Any) -> str:
    """Returns the kind of a statement: ``SELECT``, ``CREATE``."""
    try:
        return str(statement.type.name).replace("_", " ")
    except ValueError:  # DuckDB has more kinds than its Python library names
        return str(statement.query).split(maxsplit=1)[0].upper()


def _returns_rows(command: str, columns: list[str], text: str) -> bool:
    """Returns whether the rows are the statement's result, rather than DuckDB's row count or success flag."""
    if command in ("INSERT", "UPDATE", "DELETE", "MERGE INTO", "COPY", "CREATE"):
        return columns != _COUNTED or "RETURNING" in text.upper()
    return bool(columns) and columns != ["Success"]


def _failure(error: Exception, place: str) -> ToolFailure:
    code = type(error).__name__.removesuffix("Exception")
    if isinstance(error, duckdb.PermissionException):
        message = f"{place}: {message_of(error)}"
        if "://" in message:
            message += "; tasks of `http` can fetch it"
        elif "extension" not in message:
            message += "; the operator can allow folders with NOETL_DUCKDB_PATHS"
        return ToolFailure.of("not_allowed", message, code=code)
    kind = "syntax" if isinstance(error, duckdb.ParserException) else "sql"
    if isinstance(error, duckdb.IOException) and COPIES_FOLDER in str(error):
        kind = next((kind for text, kind in _OF_THE_DISK.items() if text in str(error)), kind)
    if kind == "limit_exceeded":
        message = (
            f"{place}: it writes more bytes than a task may have on its worker's disk ({MAX_SCRATCH_BYTES_VARIABLE})"
        )
        return ToolFailure.of(kind, message, code=code)
    return ToolFailure.of(kind, f"{place}: {message_of(error)}", code=code)


def _with_names(failure: ToolFailure, job: DuckdbJob) -> ToolFailure:
    """Returns the failure with files named as the author knows them."""
    message = failure.error.message
    for file in job.files:
        at = "" if message.startswith(file.place) else f"{file.place}, "
        path = f"{re.escape(text_file(file))}|{re.escape(file.file)}"
        message = f"{at}{file.what}".join(re.split(rf'(?:\bfile )?"(?:{path})"|{path}', message))
    return ToolFailure(msgspec.structs.replace(failure.error, message=message))


def message_of(error: Exception) -> str:
    """Returns DuckDB's message on one line, without its excerpt of the SQL."""
    written, advice, _ = str(error).partition(_INSTALL)
    message, _, excerpt = written.partition("\n\nLINE ")
    # For an unreadable row, keep the reason; drop the row itself and DuckDB's advice.
    first, *lines = message.split("\n")
    if _CSV_LINE in first:
        reason = next((line for line in lines if line.startswith(_CSV_REASONS)), "cannot be read")
        file = next((line for line in lines if line.startswith(_CSV_FILE)), "the text")
        where = f"{file.removeprefix(_CSV_FILE)}, line {first.partition(_CSV_LINE)[2]}"
        message = f"{where}: {reason.removeprefix('Error when ')}"
    line = excerpt.partition(":")[0]
    text = " ".join(message.split()).replace(_LARGER_OBJECTS, "")[:_MESSAGE_CHARACTERS]
    text += " Tasks cannot load extensions." if advice else ""
    return f"{text} (line {line})" if line.isdecimal() else text
