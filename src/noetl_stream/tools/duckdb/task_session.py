"""Runs one DuckDB task in a thread: tables, statements, rows. Can be interrupted from another thread."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final
from weakref import WeakValueDictionary

import duckdb

from noetl_stream.tools import sql
from noetl_stream.tools.contract import ToolFailure
from noetl_stream.tools.duckdb.column_values import Carrier, carriers_of, is_same, read_rows
from noetl_stream.tools.duckdb.copies import CopiedDatabase, load
from noetl_stream.tools.duckdb.syntax import creates_secret
from noetl_stream.tools.duckdb.tables import Table, quote_identifier, rows_of, table_statement
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
_open_locks: Final[WeakValueDictionary[str, threading.Lock]] = WeakValueDictionary()
_open_locks_guard: Final = threading.Lock()


def _open_lock(database: str | None) -> threading.Lock:
    """Returns the lock for opening and closing a file. Tasks on one file share DuckDB's instance of it: the first must
    lock it down before the next connects, and the last must have closed it before it is opened again.
    """
    if database is None:
        return threading.Lock()
    with _open_locks_guard:
        return _open_locks.setdefault(str(Path(database).resolve()), threading.Lock())


class DuckdbSession:
    """The connection of one task. All methods except :meth:`interrupt` must be called from one thread.

    Args:
        database: The database file, or ``None`` for a database in memory.
        folders: Folders whose files the SQL may use.
        attached: Databases to read from.
    """

    def __init__(
        self,
        database: str | None,
        config: Mapping[str, str | bool | int | float | list[str]],
        max_rows: int,
        folders: Sequence[Path] = (),
        attached: Sequence[CopiedDatabase] = (),
    ) -> None:
        self._database = database
        self._config = dict(config)
        self._max_rows = max_rows
        self._folders = folders
        self._attached = attached
        self._connection: duckdb.DuckDBPyConnection | None = None
        self._interrupted = threading.Event()
        self._open_lock = _open_lock(database)
        self._closing = threading.Lock()  # a closed connection must not be interrupted

    def interrupt(self) -> None:
        """Interrupts the running statement and prevents later ones from starting."""
        self._interrupted.set()
        with self._closing:
            if self._connection is not None:
                self._connection.interrupt()

    def run(
        self, texts: Iterable[str], params: sql.Params, tables: Mapping[str, Table], idempotency_key: str
    ) -> dict[str, Any]:
        """Creates the tables, runs the statements of ``texts`` in one transaction, and returns the result.

        Raises:
            ToolFailure: ``sql``, ``syntax``, ``not_allowed``, ``connection`` (the file), ``result_too_large``,
                ``result_not_json``, ``invalid_input``, or ``cancelled`` after :meth:`interrupt`.
        """
        if self._interrupted.is_set():
            raise _cancelled_failure()
        connection = self._open()
        try:
            statements = _statements(connection, texts)
            _refuse_extensions(statements)
            if self._database is not None:
                _refuse_shared(statements)
            sql.check_params(params, [(one.query, [str(name) for name in one.named_parameters]) for one in statements])
            self._check_held(params)
            connection.execute("begin")
            connection.execute("set variable idempotency_key = $1", [idempotency_key])
            for name, table in tables.items():
                statement, text = table_statement(name, *rows_of(name, table))
                self._execute(statement, {"1": text}, f"tables.{name}")
            result = self._results(statements, params)
            self._execute("commit", {}, "at commit")
            return result
        except duckdb.Error as error:
            raise _failure(error, "duckdb") from None
        finally:
            with self._open_lock:
                self._close(connection)

    def _open(self) -> duckdb.DuckDBPyConnection:
        with self._open_lock:
            connection = self._connect()
            try:
                self._lock_down()
            except duckdb.Error as error:
                self._close(connection)
                raise _failure(error, "duckdb") from None
            except ToolFailure:
                self._close(connection)
                raise
        return connection

    def _close(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Closes the connection, which rolls back."""
        with self._closing:
            self._connection = None
        connection.close()

    def _connect(self) -> duckdb.DuckDBPyConnection:
        try:
            connection = duckdb.connect(self._database or ":memory:", config=self._config)
        except (duckdb.OperationalError, duckdb.ConnectionException) as error:
            # Another process, or a task with other knobs, has the file open.
            message = f"cannot open database {self._database!r}: {_message_of(error)}"
            raise ToolFailure.of("connection", message, retryable=True) from None
        except duckdb.Error as error:
            raise invalid_input(f"DuckDB rejects the knobs or the database: {_message_of(error)}") from None
        self._connection = connection
        return connection

    def _lock_down(self) -> None:
        """Disables files, extensions, the network and settings. Attached databases are loaded first."""
        connection = self._connection
        assert connection is not None
        if connection.execute("select current_setting('lock_configuration')").fetchall() == [(True,)]:
            return  # locked by another task on the same file
        for database in self._attached:
            load(database, partial(self._run_query, f"attach.{database.alias}"))
        # Otherwise text, days and hours of a time with a zone would depend on the machine.
        connection.execute("set global timezone = 'UTC'")
        connection.execute("set allowed_directories = $1", [[str(folder) for folder in self._folders]])
        connection.execute("set enable_external_access = false")
        connection.execute("set lock_configuration = true")

    def _run_query(self, place: str, query: str) -> list[tuple[Any, ...]]:
        rows: list[tuple[Any, ...]] = self._execute(query, {}, place).fetchall()
        return rows

    def _results(self, statements: Sequence[Any], params: sql.Params) -> dict[str, Any]:
        runs: list[sql.StatementRun] = []
        returned: sql.Returned | None = None
        for number, statement in enumerate(statements, start=1):
            values = {name: sql.value_of(params, str(name)) for name in statement.named_parameters}
            run, rows = self._statement(number, statement, values)
            runs.append(run)
            returned = rows or returned
        return sql.result_of(returned, runs)

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
    ) -> tuple[sql.StatementRun, sql.Returned | None]:
        place = f"statement {number}"
        command = _command(statement)
        selected = self._with_carriers(statement.query, values, place) if command == "SELECT" else None
        connection = self._execute(statement if selected is None else selected[1], values, place)
        columns = [str(column[0]) for column in connection.description or ()]
        if not _returns_rows(command, columns, str(statement.query)):
            counted = self._fetch_rows(connection, place)
            return sql.StatementRun(command, int(counted[0][0]) if counted and columns == _COUNTED else None), None
        carriers = carriers_of(it[1] for it in connection.description or ()) if selected is None else selected[0]
        sql.check_columns(columns, number)
        rows = self._fetch_rows(connection, place)
        if len(rows) > self._max_rows:
            raise sql.too_many_rows(number, self._max_rows)
        return sql.StatementRun(command, len(rows)), sql.Returned(columns, read_rows(rows, carriers))

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
        if self._interrupted.is_set():
            raise _cancelled_failure()
        try:
            return self._connection.execute(statement, values) if values else self._connection.execute(statement)
        except duckdb.Error as error:
            raise _failure(error, place) from None

    def _fetch_rows(self, connection: duckdb.DuckDBPyConnection, place: str) -> list[tuple[Any, ...]]:
        try:
            rows: list[tuple[Any, ...]] = connection.fetchmany(self._max_rows + 1)
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
    if isinstance(error, duckdb.InterruptException):
        return _cancelled_failure()
    code = type(error).__name__.removesuffix("Exception")
    if isinstance(error, duckdb.PermissionException):
        message = f"{place}: {_message_of(error)}"
        if "://" in message:
            message += "; tasks of `http` can fetch it"
        elif "extension" not in message:
            message += "; the operator can allow folders with NOETL_DUCKDB_PATHS"
        return ToolFailure.of("not_allowed", message, code=code)
    kind = "syntax" if isinstance(error, duckdb.ParserException) else "sql"
    return ToolFailure.of(kind, f"{place}: {_message_of(error)}", code=code)


def _cancelled_failure() -> ToolFailure:
    return ToolFailure.of("cancelled", "the statement was interrupted")


def _message_of(error: Exception) -> str:
    """Returns DuckDB's message on one line, without its excerpt of the SQL."""
    written, advice, _ = str(error).partition(_INSTALL)
    message, _, excerpt = written.partition("\n\nLINE ")
    # For an unreadable row, keep the reason; drop the row itself and DuckDB's advice.
    message = message.partition("\nError when ")[2].partition("\n")[0] or message
    line = excerpt.partition(":")[0]
    text = " ".join(message.split())[:_MESSAGE_CHARACTERS]
    text += " Tasks cannot load extensions." if advice else ""
    return f"{text} (line {line})" if line.isdecimal() else text
