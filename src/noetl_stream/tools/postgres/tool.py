"""``kind: postgres``: SQL statements, in one transaction by default (LANGUAGE §12)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec
from pydantic import Field

from noetl_stream.playbook.kinds.spec import KindSpec
from noetl_stream.settings.tools import ToolSettings
from noetl_stream.tools import sql
from noetl_stream.tools.contract import ToolCall, ToolFailure, ToolResult
from noetl_stream.tools.egress import Egress
from noetl_stream.tools.inputs import Auth, auth_field, invalid_input, validated
from noetl_stream.tools.postgres.failures import failures_translated
from noetl_stream.tools.postgres.params import bind_value
from noetl_stream.tools.postgres.pool import ConnectionPools, PoolShare
from noetl_stream.tools.postgres.statements import SqlStatement, refusal, split_statements
from noetl_stream.tools.postgres.syntax import params_error, syntax_problems

if TYPE_CHECKING:
    from asyncpg.prepared_stmt import PreparedStatement

    from noetl_stream.tools.postgres.pool import Connection

ROWS_CONVERTED_INLINE: Final = 1_000
"""Rows converted to JSON on the event loop; more are converted in a thread, to keep heartbeats going."""
_MAX_APPLICATION_NAME: Final = 63
_MAX_TIMEOUT_MS: Final = 2**31 - 1
DEAD_WORKER_GRACE_S: Final = 1.0
"""How long after the task's timeout Postgres cancels a statement, in case the worker is gone."""
_SETTINGS: Final = "select set_config(name, value, $3) from unnest($1::text[], $2::text[]) as given (name, value)"


class PostgresInputs(sql.SqlInputs):
    """Inputs of ``postgres``."""

    auth: Auth = auth_field(
        ..., "Name of a credential: a DSN, or a mapping `{dsn}` or `{host, port, user, password, database, sslmode}`."
    )
    pool: PoolShare | None = Field(default=None, description="How many connections, and how long to wait for one.")


class PostgresKnobs(sql.SqlKnobs):
    """Knobs of ``postgres``."""

    transaction: bool = Field(
        default=True,
        description="Whether all statements run in one transaction; if not, each commits on its own.",
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
    )

    def __init__(self, pools: ConnectionPools | None = None) -> None:
        self._pools = pools or ConnectionPools()

    @classmethod
    def configured(cls, settings: ToolSettings) -> PostgresTool:
        """The tool with the addresses that the operator allows."""
        return cls(ConnectionPools(Egress(settings.egress)))

    async def run(self, call: ToolCall) -> ToolResult:
        """Returns ``{rows, row_count, columns, statements}`` of the last statement that returned rows.

        The statements run in one transaction unless the knob ``transaction`` is false.
        ``current_setting('noetl.idempotency_key')`` is the call's key.

        Raises:
            ToolFailure: ``sql`` and ``syntax`` (helper ``pg {code, sqlstate, message}``), ``connection``, ``timeout``,
                ``forbidden_address``, ``credential``, ``result_too_large``, ``result_not_json``, ``invalid_input``.
        """
        inputs = validated(PostgresInputs, call.inputs)
        knobs = validated(PostgresKnobs, call.knobs)
        statements = _bound_statements(inputs.texts, inputs.params)
        async with self._pools.connection(call, inputs.auth, inputs.pool) as connection:
            run = _Run(connection, knobs, call.timeouts.read)
            with failures_translated() as place:
                async with connection.transaction() if knobs.transaction else nullcontext():
                    await run.settings(call)
                    for number, statement in enumerate(statements, start=1):
                        place.at_statement(number, statement.line, statement.sql, statement.names)
                        await run.statement(number, statement)
                    place.at_commit()
        return ToolResult(await run.result())

    async def close(self) -> None:
        """Closes the connections."""
        await self._pools.close()


@dataclass(frozen=True, slots=True)
class _BoundStatement:
    """A statement with ``$1``, ``$2``, … and the name and value of each."""

    sql: str
    line: int
    command: str
    names: tuple[str, ...]
    values: tuple[Any, ...]


def _bound_statements(texts: Sequence[str], params: sql.Params) -> list[_BoundStatement]:
    statements = [statement for text in texts for statement in split_statements(text)]
    if not statements:
        raise invalid_input("command: has no statements")
    for number, statement in enumerate(statements, start=1):
        if (reason := refusal(statement)) is not None:
            raise invalid_input(f"statement {number}: {reason}")
    sql.check_params(params, [(one.text, [parameter.name for parameter in one.parameters]) for one in statements])
    return [_bound(statement, params) for statement in statements]


def _bound(statement: SqlStatement, params: sql.Params) -> _BoundStatement:
    names = tuple(dict.fromkeys(parameter.name for parameter in statement.parameters))
    pieces, position = [], 0
    for parameter in statement.parameters:
        pieces += [statement.text[position : parameter.start], f"${names.index(parameter.name) + 1}"]
        position = parameter.end
    text = "".join([*pieces, statement.text[position:]])
    values = tuple(sql.value_of(params, name) for name in names)
    return _BoundStatement(text, statement.line, " ".join(statement.words[:1]), names, values)


class _Run:
    """The statements of one task on one connection."""

    def __init__(self, connection: Connection, knobs: PostgresKnobs, read_timeout_s: float | None) -> None:
        self._connection = connection
        self._max_rows = knobs.max_rows
        self._one_transaction = knobs.transaction
        self._read_timeout_s = read_timeout_s
        self._runs: list[sql.StatementRun] = []
        self._returned: sql.Returned | None = None
        self._json_columns: frozenset[int] = frozenset()

    async def settings(self, call: ToolCall) -> None:
        name = f"noetl-stream {call.step}.{call.task} {call.execution_id}"[:_MAX_APPLICATION_NAME]
        settings = {"noetl.idempotency_key": call.idempotency_key, "application_name": name}
        longest_s = self._read_timeout_s or call.timeouts.total
        if longest_s is not None:
            longest_ms = round((longest_s + DEAD_WORKER_GRACE_S) * 1000)
            settings["statement_timeout"] = str(min(longest_ms, _MAX_TIMEOUT_MS))
        prepared = await self._connection.prepare(_SETTINGS)
        await prepared.fetch(list(settings), list(settings.values()), self._one_transaction)

    async def statement(self, number: int, statement: _BoundStatement) -> None:
        prepared = await self._connection.prepare(statement.sql, timeout=self._read_timeout_s)
        values = _values(statement, prepared)
        columns = [attribute.name for attribute in prepared.get_attributes()]
        if columns:
            sql.check_columns(columns, number)
            rows = await self._rows(prepared, values, number)
            self._returned = sql.Returned(columns, rows)
            self._json_columns = _json_columns(prepared)
            self._runs.append(sql.StatementRun(statement.command, len(rows)))
        else:
            await prepared.fetch(*values, timeout=self._read_timeout_s)
            self._runs.append(_status(prepared.get_statusmsg() or statement.command))

    async def _rows(self, prepared: PreparedStatement[Any], values: Sequence[Any], number: int) -> list[Any]:
        # A cursor, so that a statement without LIMIT cannot fill the worker's memory.
        async with nullcontext() if self._one_transaction else self._connection.transaction():
            cursor = await prepared.cursor(*values, timeout=self._read_timeout_s)
            rows: list[Any] = await cursor.fetch(self._max_rows + 1, timeout=self._read_timeout_s)
            if len(rows) > self._max_rows:
                raise sql.too_many_rows(number, self._max_rows)
        return rows

    async def result(self) -> dict[str, Any]:
        if self._returned is None or len(self._returned.rows) <= ROWS_CONVERTED_INLINE:
            return self._plain_result()
        return await asyncio.to_thread(self._plain_result)

    def _plain_result(self) -> dict[str, Any]:
        import asyncpg

        returned = self._returned
        if returned is not None and self._json_columns:
            returned = sql.Returned(returned.columns, _with_json(returned.rows, self._json_columns))
        return sql.result_of(returned, self._runs, {**sql.CONVERSIONS, asyncpg.Record: dict})


def _values(statement: _BoundStatement, prepared: PreparedStatement[Any]) -> list[Any]:
    values = []
    for name, value, expected in zip(statement.names, statement.values, prepared.get_parameters(), strict=True):
        try:
            values.append(bind_value(value, expected.name))
        except (ValueError, OverflowError) as error:
            raise invalid_input(f"params.{name}: {str(error).replace('$name', f'${name}')}") from None
    return values


def _json_columns(prepared: PreparedStatement[Any]) -> frozenset[int]:
    """The indices of JSON columns, which the driver returns as text."""
    names = [attribute.type.name.removesuffix("[]") for attribute in prepared.get_attributes()]
    return frozenset(index for index, name in enumerate(names) if name in ("json", "jsonb"))


def _with_json(rows: Sequence[Sequence[Any]], columns: frozenset[int]) -> list[list[Any]]:
    return [[_parsed_json(value) if index in columns else value for index, value in enumerate(row)] for row in rows]


def _parsed_json(value: Any) -> Any:
    if isinstance(value, list):
        return [_parsed_json(item) for item in value]
    if value is None:
        return None
    try:
        return msgspec.json.decode(value)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ToolFailure.of("result_not_json", f"cannot read a json column: {error}; cast it to text") from None


def _status(message: str) -> sql.StatementRun:
    """``INSERT 0 5`` is ``INSERT`` with 5 rows; ``CREATE TABLE`` has no count."""
    words = message.split()
    count = int(words[-1]) if len(words) > 1 and words[-1].isdecimal() else None
    return sql.StatementRun(" ".join(word for word in words if not word.isdecimal()), count)
