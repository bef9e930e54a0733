"""``kind: postgres``: SQL statements, in one transaction by default (LANGUAGE §12)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, cast

from pydantic import AliasChoices, Field, model_validator

from noetl_stream.concurrency import beside
from noetl_stream.playbook.kinds.spec import KindSpec
from noetl_stream.settings.tools import ToolSettings
from noetl_stream.tools import sql
from noetl_stream.tools.capacity import WAITING
from noetl_stream.tools.contract import ToolCall, ToolFailure, ToolResult
from noetl_stream.tools.duckdb.tool import DuckdbTool
from noetl_stream.tools.egress import Egress
from noetl_stream.tools.inputs import Auth, auth_field, invalid_input, validated
from noetl_stream.tools.postgres.connect import first_rows, statements_on
from noetl_stream.tools.postgres.failures import failures_translated
from noetl_stream.tools.postgres.params import bind_value
from noetl_stream.tools.postgres.pool import ConnectionPools, PoolShare
from noetl_stream.tools.postgres.statements import SqlStatement, refusal, split_statements
from noetl_stream.tools.postgres.syntax import params_error, syntax_problems
from noetl_stream.tools.postgres.transfer import CopyInto, Transfer, reference_of
from noetl_stream.tools.scratch.scratch import Scratch

if TYPE_CHECKING:
    from asyncpg.prepared_stmt import PreparedStatement
    from asyncpg.types import Type

    from noetl_stream.sealing.data_references import DataReference
    from noetl_stream.telemetry.measures import Reading
    from noetl_stream.tools.postgres.domain_connection import DomainConnection
    from noetl_stream.tools.postgres.pool import Connection

MAX_PARAMETERS: Final = 32_767
"""The most parameters of one statement, a bound of the driver."""
_VALUES_BOUND_INLINE: Final = 100
_READ_BESIDE_CHARS: Final = 16_384
"""The characters of SQL that take long to read, and are read in a thread."""
_MAX_APPLICATION_NAME: Final = 63
_MAX_TIMEOUT_MS: Final = 2**31 - 1
DEAD_WORKER_GRACE_S: Final = 1.0
"""The time after the task's timeout at which Postgres cancels a statement, in case the worker has died."""
_SETTINGS: Final = "select set_config(name, value, false) from unnest($1::text[], $2::text[]) as given (name, value)"


class PostgresInputs(sql.SqlInputs):
    """Inputs of ``postgres``."""

    auth: Auth = auth_field(
        ..., "Name of a credential: a DSN, or a mapping `{dsn}` or `{host, port, user, password, database, sslmode}`."
    )
    pool: PoolShare | None = Field(default=None, description="How many connections, and how long to wait for one.")
    command: str | list[str] | None = Field(  # type: ignore[assignment]  # beside `copy` it may be missing
        default=None,
        validation_alias=sql.COMMAND_NAMES,
        description="SQL with one or more statements, or a list of such texts. Needed without `copy`.",
    )
    copy_into: CopyInto | None = Field(
        default=None,
        validation_alias=AliasChoices("copy"),
        description="Rows to load after the statements: `{table, from, columns}`.",
    )
    into: Literal["table"] | None = Field(
        default=None, description="`table`: the rows of the last statement become a table by reference."
    )

    @model_validator(mode="after")
    def _complete(self) -> PostgresInputs:
        error = _combination_error([name for name in type(self).model_fields if getattr(self, name) is not None])
        if error is not None:
            raise ValueError(error)
        return self


def _combination_error(given: Collection[str]) -> str | None:
    if not {"command", "copy_into"} & set(given):
        return "`postgres` needs `command`, `copy` or both"
    if {"copy_into", "into"} <= set(given):
        return "`into` goes with `command` alone, since `copy` returns no rows"
    return None


class PostgresKnobs(sql.SqlKnobs):
    """Knobs of ``postgres``."""

    transaction: bool = Field(
        default=True,
        description="Whether all statements run in one transaction; if not, each commits on its own.",
    )
    isolation: Literal["read_committed", "repeatable_read", "serializable"] | None = Field(
        default=None, description="Isolation of the transactions. Default: that of the database."
    )


class PostgresTool:
    """Runs statements over small connection pools, one per database."""

    spec = KindSpec(
        kind="postgres",
        inputs=PostgresInputs,
        knobs=PostgresKnobs,
        statements=sql.SQL_INPUTS,
        code={"command": syntax_problems},
        params_error=params_error,
        helper="pg",
        result_keys=sql.SQL_RESULT | {"table"},
        combination_error=_combination_error,
    )

    def __init__(self, pools: ConnectionPools | None = None, settings: ToolSettings | None = None) -> None:
        self._settings = settings or ToolSettings()
        self._pools = pools or ConnectionPools(Egress(self._settings.egress))
        self._duckdb = DuckdbTool(self._settings)

    @classmethod
    def configured(cls, settings: ToolSettings) -> PostgresTool:
        """Makes the tool with the addresses that the operator allows."""
        return cls(settings=settings)

    def readings(self) -> Sequence[Reading]:
        """Returns the metrics of the tool: see :class:`~noetl_stream.telemetry.measures.Measured`."""
        return [WAITING.read(self._pools.waiting, self.spec.kind)]

    async def run(self, call: ToolCall) -> ToolResult:
        """Returns ``{rows, row_count, columns, statements}`` of the last statement that returned rows.

        The statements run in one transaction unless the knob ``transaction`` is false.
        ``current_setting('noetl.idempotency_key')`` is the call's key.

        Raises:
            ToolFailure: ``sql`` and ``syntax`` (helper ``pg {code, sqlstate, message}``), ``connection``, ``timeout``,
                ``forbidden_address``, ``credential``, ``result_too_large``, ``result_not_json``, ``invalid_input``.
                With ``copy`` and ``into`` also ``not_found``, ``result_lost`` and ``limit_exceeded``.
        """
        inputs = validated(PostgresInputs, call.inputs)
        knobs = validated(PostgresKnobs, call.knobs)
        texts = inputs.texts if inputs.command is not None else []
        statements: list[BoundStatement] = []
        if texts or inputs.copy_into is None:
            reading = partial(read_statements, texts, inputs.params)
            statements = await beside(reading, sum(map(len, texts)), _READ_BESIDE_CHARS)
        source = None if inputs.copy_into is None else reference_of(call, inputs.copy_into)
        async with contextlib.AsyncExitStack() as held:
            scratch: Scratch | None = None
            if inputs.copy_into is not None or inputs.into is not None:
                scratch = await held.enter_async_context(self._duckdb.scratch_folders.folder())
            connection = await held.enter_async_context(self._pools.connection(call, inputs.auth, inputs.pool))
            transfer = (
                None if scratch is None else Transfer(call, connection, scratch, self._duckdb, call.timeouts.read)
            )
            run = _Run(connection, knobs, call.timeouts.read)
            with failures_translated() as place:
                await run.settings(call)
                async with statements_on(connection, in_transaction=knobs.transaction):
                    for number, statement in enumerate(statements, start=1):
                        place.at_statement(number, statement.line, statement.sql, statement.names)
                        if transfer is not None and inputs.into is not None and number == len(statements):
                            await run.write(number, statement, transfer)
                        else:
                            await run.statement(number, statement)
                    if inputs.copy_into is not None and source is not None and transfer is not None:
                        place.text, place.line = "copy", 0
                        await run.load(inputs.copy_into, source, transfer)
                    place.at_commit()
        return ToolResult(await asyncio.to_thread(run.result))

    async def close(self) -> None:
        await self._pools.close()
        await self._duckdb.close()


@dataclass(frozen=True, slots=True)
class BoundStatement:
    """A statement with ``$1``, ``$2``, … and the name and value of each."""

    sql: str
    line: int
    command: str
    names: tuple[str, ...]
    values: tuple[Any, ...]


def read_statements(texts: Sequence[str], params: sql.Params) -> list[BoundStatement]:
    """Reads the statements of the texts with their parameters, in linear time.

    Raises:
        ToolFailure: ``invalid_input``.
    """
    statements = [statement for text in texts for statement in split_statements(text)]
    if not statements:
        raise invalid_input("command: has no statements")
    for number, statement in enumerate(statements, start=1):
        if (reason := refusal(statement)) is not None:
            raise invalid_input(f"statement {number}: {reason}")
    sql.check_params(params, [(one.text, [parameter.name for parameter in one.parameters]) for one in statements])
    return [_bound(number, statement, params) for number, statement in enumerate(statements, start=1)]


def _bound(number: int, statement: SqlStatement, params: sql.Params) -> BoundStatement:
    places: dict[str, int] = {}
    pieces, position = [], 0
    for parameter in statement.parameters:
        place = places.setdefault(parameter.name, len(places) + 1)
        pieces += [statement.text[position : parameter.start], f"${place}"]
        position = parameter.end
    if len(places) > MAX_PARAMETERS:
        most = f"{len(places):,} parameters, and may use {MAX_PARAMETERS:,}"
        raise invalid_input(f"statement {number} uses {most}; pass the rows as one, such as $rows::jsonb")
    text = "".join([*pieces, statement.text[position:]])
    values = tuple(sql.value_of(params, name) for name in places)
    return BoundStatement(text, statement.line, " ".join(statement.words[:1]), tuple(places), values)


class _Run:
    """The statements of one task on one connection."""

    def __init__(self, connection: Connection, knobs: PostgresKnobs, read_timeout_s: float | None) -> None:
        self._connection = connection
        self._knobs = knobs
        self._read_timeout_s = read_timeout_s
        self._runs: list[sql.StatementRun] = []
        self._returned: sql.Returned | None = None
        self._json_columns: frozenset[int] = frozenset()
        self._table: dict[str, Any] | None = None

    async def settings(self, call: ToolCall) -> None:
        """Sets the task's session settings, before its transaction: the first statement in it is the author's."""
        name = f"noetl-stream {call.step}.{call.task} {call.execution_id}"[:_MAX_APPLICATION_NAME]
        settings = {"noetl.idempotency_key": call.idempotency_key, "application_name": name}
        longest_s = self._read_timeout_s or call.timeouts.total
        if longest_s is not None:
            longest_ms = round((longest_s + DEAD_WORKER_GRACE_S) * 1000)
            settings["statement_timeout"] = str(min(longest_ms, _MAX_TIMEOUT_MS))
        if self._knobs.isolation is not None:
            settings["default_transaction_isolation"] = self._knobs.isolation.replace("_", " ")
        await self._connection.execute(_SETTINGS, list(settings), list(settings.values()))

    async def statement(self, number: int, statement: BoundStatement) -> None:
        """Runs a statement. One whose answer is too long ends the connection, and so its transaction."""
        max_bytes = self._knobs.max_result_bytes
        received = cast("DomainConnection", self._connection).received
        with received.at_most(max_bytes, partial(sql.too_many_bytes, number, max_bytes)):
            await self._run(number, statement)

    async def write(self, number: int, statement: BoundStatement, transfer: Transfer) -> None:
        """Runs the last statement, whose rows become a table by reference."""
        prepared = await self._connection.prepare(statement.sql, timeout=self._read_timeout_s)
        columns = [attribute.name for attribute in prepared.get_attributes()]
        if not columns:
            raise invalid_input(f"statement {number}: with `into`, the last statement must return rows")
        sql.check_columns(columns, number)
        values = await _values(statement, prepared)
        self._table = await transfer.write(statement.sql, prepared, values)
        self._returned = sql.Returned(columns, [])
        self._runs.append(sql.StatementRun(statement.command, self._table["rows"]))

    async def load(self, given: CopyInto, source: DataReference, transfer: Transfer) -> None:
        """Loads a table or file, whose number of rows is the result."""
        count = await transfer.load(given, source)
        self._returned = None
        self._runs.append(sql.StatementRun("COPY", count))

    async def _run(self, number: int, statement: BoundStatement) -> None:
        prepared = await self._connection.prepare(statement.sql, timeout=self._read_timeout_s)
        values = await _values(statement, prepared)
        columns = [attribute.name for attribute in prepared.get_attributes()]
        sql.check_columns(columns, number)
        # Each row of the result has the names of the columns, which Postgres sends once.
        most_rows = self._knobs.max_result_bytes // (sum(map(len, columns)) + 1)
        count = min(self._knobs.max_rows, most_rows) + 1
        rows = await first_rows(prepared, values, count, self._read_timeout_s)
        if not columns:
            self._runs.append(_status(prepared.get_statusmsg() or statement.command))
            return
        if len(rows) > self._knobs.max_rows:
            raise sql.too_many_rows(number, self._knobs.max_rows)
        if len(rows) > most_rows:
            raise sql.too_many_bytes(number, self._knobs.max_result_bytes)
        self._returned = sql.Returned(columns, rows)
        self._json_columns = _json_columns(prepared)
        self._runs.append(sql.StatementRun(statement.command, len(rows)))

    def result(self) -> dict[str, Any]:
        """Builds the result of the statements. It may take long, so it is called in a thread."""
        import asyncpg

        returned = self._returned
        if returned is not None and self._json_columns:
            returned = sql.Returned(returned.columns, _with_json(returned, self._json_columns))
        result = sql.result_of(returned, self._runs, {**sql.CONVERSIONS, asyncpg.Record: dict})
        if self._table is None:
            return result
        del result["rows"]
        return {"table": self._table, **result, "row_count": self._table["rows"]}


async def _values(statement: BoundStatement, prepared: PreparedStatement[Any]) -> list[Any]:
    are_many = len(statement.values) > _VALUES_BOUND_INLINE
    if are_many or any(isinstance(value, list | dict) for value in statement.values):
        return await asyncio.to_thread(_bound_values, statement, prepared.get_parameters())
    return _bound_values(statement, prepared.get_parameters())


def _bound_values(statement: BoundStatement, types: Sequence[Type]) -> list[Any]:
    values = []
    for name, value, expected in zip(statement.names, statement.values, types, strict=True):
        try:
            values.append(bind_value(value, expected.name))
        except (ValueError, OverflowError) as error:
            raise invalid_input(f"params.{name}: {str(error).replace('$name', f'${name}')}") from None
    return values


def _json_columns(prepared: PreparedStatement[Any]) -> frozenset[int]:
    """Returns the indices of JSON columns, which the driver returns as text."""
    names = [attribute.type.name.removesuffix("[]") for attribute in prepared.get_attributes()]
    return frozenset(index for index, name in enumerate(names) if name in ("json", "jsonb"))


def _with_json(returned: sql.Returned, indices: frozenset[int]) -> list[list[Any]]:
    rows = [list(row) for row in returned.rows]
    for number, row in enumerate(rows):
        for index in indices:
            try:
                row[index] = _parsed_json(row[index])
            except ValueError as error:
                place = f"rows[{number}].{returned.columns[index]}"
                message = f"{place}: cannot read its JSON: {error}; cast the column to text"
                raise ToolFailure.of("result_not_json", message) from None
    return rows


def _parsed_json(value: Any) -> Any:
    if isinstance(value, list):
        return [_parsed_json(item) for item in value]
    return None if value is None else sql.parsed_json(value)


def _status(message: str) -> sql.StatementRun:
    """Parses a status: ``INSERT 0 5`` is ``INSERT`` with 5 rows; ``CREATE TABLE`` has no count."""
    words = message.split()
    count = int(words[-1]) if len(words) > 1 and words[-1].isdecimal() else None
    return sql.StatementRun(" ".join(word for word in words if not word.isdecimal()), count)
