"""Connections to Postgres: a small pool for short statements, separate ones for commits and migrations."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from functools import cache, partial, wraps
from types import NoneType
from typing import Any, Concatenate, Final, ParamSpec, TypeVar, cast, get_args, get_origin, get_type_hints
from urllib.parse import parse_qs, urlsplit

import asyncpg

from noetl_stream.adapters.postgres.connections.failures import (
    DRIVER_ERRORS,
    is_to_repeat,
    translate_error,
    translating,
    was_answered,
)
from noetl_stream.adapters.postgres.connections.hosts import (
    SILENT_S,
    Connection,
    OverdueStatements,
    connect,
    host_names,
)
from noetl_stream.adapters.postgres.statements import Statement, row_of, statement
from noetl_stream.errors import NotReady, QueryTooLong, Unreachable, UsageError
from noetl_stream.ports.stores.idempotency import charged_queries
from noetl_stream.protocol.rows import Row
from noetl_stream.retries import pauses

_Given = ParamSpec("_Given")
_Answer = TypeVar("_Answer")

OLDEST_POSTGRES: Final = 14
CONNECT_TIMEOUT_S: Final = 10.0
READ_TIMEOUT_S: Final = 60.0
CLOSE_TIMEOUT_S: Final = 5.0
CONNECT_AGAIN_S: Final = 0.2
MAX_CONNECT_AGAIN_S: Final = 2.0
POOL_CONNECTIONS: Final = 6
"""The number of connections; the last is for probes: whether Postgres answers must not depend on requests."""

APPLICATION_NAME_BYTES: Final = 63
"""The bytes at which Postgres cuts application names."""


def shown_address(dsn: str) -> str:
    """Returns ``dsn`` without its password, safe to show and log.

    Raises:
        UsageError: ``dsn`` is no Postgres URL. The message does not repeat it, since it may contain a password.
    """
    hint = "write postgresql://user:password@host:5432/database"
    try:
        parts = urlsplit(dsn)
        host = ",".join(map(_shown_host, host_names(dsn)))
    except ValueError:
        raise UsageError("the Postgres address is not a URL", hint=hint) from None
    if parts.scheme not in ("postgres", "postgresql"):
        raise UsageError("the Postgres address does not begin with postgresql://", hint=hint)
    if any("@" in part for part in (parts.path, parts.query.partition("=")[0], parts.fragment)):
        raise UsageError(
            "the Postgres address has signs in its user or password that must be encoded",
            hint="write / as %2F, ? as %3F, # as %23, @ as %40",
        )
    if not host:
        options = parse_qs(parts.query)
        host = ":".join(options.get("host", []) + options.get("port", [])) or "localhost"
    user = f"{parts.username}@" if parts.username else ""
    return f"postgresql://{user}{host}{parts.path}"


def _shown_host(name: str) -> str:
    """Returns a host of a DSN as it is shown.

    Raises:
        ValueError: it is not a host with or without a port.
    """
    parts = urlsplit(f"//{name}")
    host = parts.hostname or ""
    if ":" in host:
        host = f"[{host}]"
    return host if parts.port is None else f"{host}:{parts.port}"


def require_version(major: int, address: str) -> None:
    """Raises :class:`~noetl_stream.errors.NotReady` if Postgres is too old."""
    if major < OLDEST_POSTGRES:
        raise NotReady(f"Postgres at {address} is version {major}", hint=f"use version {OLDEST_POSTGRES} or newer")


async def open_connection(dsn: str, application_name: str, settings: dict[str, str] | None = None) -> Connection:
    """Opens a separate connection, with JSON columns as bytes.

    Raises:
        Unreachable: no answer, or refused.
        NotReady: the server is too old.
        UsageError: ``dsn`` is not a Postgres URL.
    """
    address = shown_address(dsn)
    with translating(address):
        connection = await connect(
            dsn,
            timeout=CONNECT_TIMEOUT_S,
            max_cached_statement_lifetime=0,
            server_settings=_session(application_name) | (settings or {}),
        )
        try:
            await _prepare(connection, address)
        except BaseException:
            connection.terminate()
            raise
    return connection


@asynccontextmanager
async def separate_connection(
    dsn: str, application_name: str, settings: dict[str, str] | None = None
) -> AsyncIterator[Connection]:
    """Holds a connection of :func:`open_connection` during the block, and translates its driver errors."""
    connection = await open_connection(dsn, application_name, settings)
    try:
        with translating(shown_address(dsn)):
            yield connection
    finally:
        try:
            await connection.close(timeout=CLOSE_TIMEOUT_S)
        except DRIVER_ERRORS:
            connection.terminate()


class Database:
    """The connections of one process to one database.

    Attributes:
        address: The address without its password, safe to show.
        overdue: Watches statements for lost connections.
    """

    def __init__(
        self, dsn: str, application_name: str, pool: asyncpg.Pool[asyncpg.Record], patience_s: float = 0.0
    ) -> None:
        self.address = shown_address(dsn)
        self.application_name = application_name
        silent_s = min(SILENT_S, patience_s) or math.inf
        self.overdue = OverdueStatements(self.connect, self.address, pool.expire_connections, silent_s)
        self._dsn = dsn
        self._pool = pool
        self._patience_s = patience_s
        self._for_requests = asyncio.Semaphore(POOL_CONNECTIONS - 1)

    @classmethod
    async def open(cls, dsn: str, name: str, *, patience_s: float = 0.0) -> Database:
        """Connects to the database. Errors: as for :func:`open_connection`.

        Args:
            name: The application's name in ``pg_stat_activity``.
            patience_s: The time for which a statement waits for a Postgres that was there before, as while it fails
                over, not for one that is silent. 0: a statement fails at once, but one that is not answered waits.
        """
        application_name = f"noetl-stream {name}".encode()[:APPLICATION_NAME_BYTES].decode(errors="ignore")
        address = shown_address(dsn)
        with translating(address):
            pool = await asyncpg.create_pool(
                dsn,
                connect=cast(Any, connect),
                min_size=0,
                max_size=POOL_CONNECTIONS,
                timeout=CONNECT_TIMEOUT_S,
                command_timeout=READ_TIMEOUT_S,
                max_cached_statement_lifetime=0,
                init=partial(_prepare, address=address),
                reset=_nothing_to_reset,
                server_settings=_session(application_name),
            )
            async with pool.acquire():
                pass  # connects once, so that a wrong address fails here
        return cls(dsn, application_name, pool, patience_s)

    async def fetch(self, query: str, /, **values: Any) -> list[asyncpg.Record]:
        """Returns the rows of a named query, in its own transaction. ``values`` are its parameters, by name."""
        return await self.fetch_statement(statement(query), values)

    async def fetch_statement(self, wanted: Statement, values: Mapping[str, Any]) -> list[asyncpg.Record]:
        """Returns the rows of a statement, in its own transaction. A write is repeated only if Postgres reports that it
        was rolled back.

        Raises:
            QueryTooLong: it only reads, and took longer than its request allows.
        """
        arguments, loop, charged = wanted.arguments(values), asyncio.get_running_loop(), charged_queries()
        longest_s = charged.longest_s if wanted.only_reads else None
        room = self._for_requests if charged.longest_s is not None else nullcontext()
        waits = pauses(CONNECT_AGAIN_S, MAX_CONNECT_AGAIN_S)
        until_s = loop.time() + (0.0 if self.overdue.is_silent else self._patience_s)
        while True:
            sent = False
            try:
                async with AsyncExitStack() as held:
                    async with self.overdue.connecting():
                        for turn in (charged.turn, room):
                            await held.enter_async_context(turn)
                        connection = await held.enter_async_context(self._pool.acquire())
                    sent = True
                    with charged.measured(), self.overdue.watching(connection):
                        return await connection.fetch(wanted.text, *arguments, timeout=longest_s)
            except DRIVER_ERRORS as error:
                if sent and longest_s is not None and isinstance(error, TimeoutError):
                    raise _too_long(longest_s) from None
                found = translate_error(error, self.address)
                may_be_done = sent and not is_to_repeat(error) and (was_answered(error) or not wanted.only_reads)
                if may_be_done or loop.time() >= until_s or not isinstance(found, Unreachable):
                    raise found from error
            await asyncio.sleep(next(waits))

    async def connect(self, settings: dict[str, str] | None = None) -> Connection:
        """Opens a connection outside the pool. Errors: as for :func:`open_connection`."""
        return await open_connection(self._dsn, self.application_name, settings)

    async def close(self) -> None:
        await self.overdue.close()
        try:
            await asyncio.wait_for(self._pool.close(), CLOSE_TIMEOUT_S)
        except TimeoutError:
            self._pool.terminate()


class DatabasePort:
    """Base of the ports over one database. Most of their methods are :func:`queried`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def _value(self, query: str, /, **values: Any) -> Any:
        """Returns the one value of a named query's first row."""
        return (await self._database.fetch(query, **values))[0][0]


def queried(
    method: Callable[Concatenate[Any, _Given], Coroutine[Any, Any, _Answer]],
    query: str = "",
    item: Callable[[Any], Any] | None = None,
    **constants: Any,
) -> Callable[Concatenate[DatabasePort, _Given], Coroutine[Any, Any, _Answer]]:
    """Implements a method of a port by one query. The parameters of the query are those of the method, by name.

    The answer is what the method is annotated to return: the first value of the first row, rows as structs, the first
    value of each row, pairs as a mapping, or whether there are rows.

    Args:
        query: The name of the query, by default that of the method.
        item: Makes a struct of the answer from a row, in place of the struct's own columns.
        constants: Further parameters of the query.
    """
    code = method.__code__
    names = code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount]
    defaults = method.__defaults__ or ()
    given_always = {**dict(zip(reversed(names), reversed(defaults), strict=False)), **constants}
    query = query or code.co_name

    @wraps(method)
    async def ask(self: DatabasePort, /, *given: _Given.args, **named: _Given.kwargs) -> _Answer:
        values = {**given_always, **dict(zip(names, given, strict=False)), **named}
        listed = {name: list(value) if isinstance(value, Mapping) else value for name, value in values.items()}
        answer: _Answer = _reader(method, item)(await self._database.fetch(query, **listed))
        return answer

    return ask


@cache
def _reader(method: Callable[..., Any], item: Callable[[Any], Any] | None) -> Callable[[Sequence[Any]], Any]:
    """Returns the function that makes the answer of a method from rows."""
    kind = get_type_hints(method)["return"]
    shape, parts = get_origin(kind) or kind, get_args(kind)
    if shape is bool or shape is NoneType:
        return bool if shape is bool else lambda rows: None
    if shape is dict:
        if parts[1] in (int, str):
            return dict
        found = item or _item(parts[1])
        return lambda rows: {row[0]: found(row) for row in rows}
    found = item or _item(parts[0] if shape in (list, set) or NoneType in parts else kind)
    if shape in (list, set):
        return lambda rows: shape(map(found, rows))
    return lambda rows: found(rows[0]) if rows or NoneType not in parts else None


@cache
def _item(kind: Any) -> Callable[[Any], Any]:
    """Returns the function that makes an item of an answer from a row."""
    if kind in (int, str):
        return lambda row: kind(row[0])
    return partial(row_of, kind) if issubclass(kind, Row) else lambda row: kind(*row)


def _too_long(longest_s: float) -> QueryTooLong:
    hint = "ask for less: name a path, a status or times, or a smaller limit"
    return QueryTooLong(f"a query for this answer took Postgres {longest_s:g} s, and was ended", hint=hint)


def _session(application_name: str) -> dict[str, str]:
    # Compiling a plan to machine code would take longer than running any statement here.
    return {"application_name": application_name, "jit": "off"}


async def _prepare(connection: Any, address: str) -> None:
    """Checks the version of Postgres, and sets JSON columns to be read and written as bytes."""
    require_version(connection.get_server_version().major, address)
    await connection.set_type_codec("json", schema="pg_catalog", encoder=bytes, decoder=bytes, format="binary")


async def _nothing_to_reset(connection: Any) -> None:
    """Returns no reset statement: statements here do not change their session, and a reset costs a round trip."""
