"""How this process reaches Postgres: a small pool for short statements, single connections for what must be alone."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

import asyncpg

from noetl_stream.adapters.postgres.address import shown_address
from noetl_stream.adapters.postgres.failures import DRIVER_ERRORS, translated
from noetl_stream.adapters.postgres.statements import Statement, statement
from noetl_stream.errors import NotReady

OLDEST_POSTGRES: Final = 14
CONNECT_TIMEOUT_S: Final = 10.0
READ_TIMEOUT_S: Final = 60.0
CLOSE_TIMEOUT_S: Final = 5.0
POOL_CONNECTIONS: Final = 4
APPLICATION_NAME_BYTES: Final = 63
"""What Postgres keeps of an application's name."""

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"


def require_version(major: int, address: str) -> None:
    """Raises :class:`~noetl_stream.errors.NotReady` for a Postgres that is too old."""
    if major < OLDEST_POSTGRES:
        raise NotReady(f"Postgres at {address} is version {major}", hint=f"use version {OLDEST_POSTGRES} or newer")


async def open_connection(dsn: str, application_name: str, settings: dict[str, str] | None = None) -> Connection:
    """A connection of its own, JSON columns as bytes.

    Raises:
        Unreachable: no answer, or refused.
        NotReady: the server is too old.
        UsageError: ``dsn`` is no Postgres URL.
    """
    address = shown_address(dsn)
    try:
        connection = await asyncpg.connect(
            dsn,
            timeout=CONNECT_TIMEOUT_S,
            max_cached_statement_lifetime=0,
            server_settings=_session(application_name) | (settings or {}),
        )
        await _json_as_bytes(connection)
    except DRIVER_ERRORS as error:
        raise translated(error, address) from error
    try:
        require_version(connection.get_server_version().major, address)
    except NotReady:
        await connection.close(timeout=CLOSE_TIMEOUT_S)
        raise
    return connection


class Database:
    """One database, as one process sees it. ``address`` may be shown."""

    def __init__(self, dsn: str, application_name: str, pool: asyncpg.Pool[asyncpg.Record]) -> None:
        self.address = shown_address(dsn)
        self.application_name = application_name
        self._dsn = dsn
        self._pool = pool

    @classmethod
    async def open(cls, dsn: str, name: str) -> Database:
        """Connects. ``name`` is shown in ``pg_stat_activity``. Errors: as of :func:`open_connection`."""
        application_name = f"noetl-stream {name}".encode()[:APPLICATION_NAME_BYTES].decode(errors="ignore")
        address = shown_address(dsn)
        try:
            pool = await asyncpg.create_pool(
                dsn,
                min_size=0,
                max_size=POOL_CONNECTIONS,
                timeout=CONNECT_TIMEOUT_S,
                command_timeout=READ_TIMEOUT_S,
                max_cached_statement_lifetime=0,
                init=_json_as_bytes,
                reset=_nothing_to_reset,
                server_settings=_session(application_name),
            )
            async with pool.acquire() as connection:
                version = connection.get_server_version()
        except DRIVER_ERRORS as error:
            raise translated(error, address) from error
        database = cls(dsn, application_name, pool)
        try:
            require_version(version.major, address)
        except NotReady:
            await database.close()
            raise
        return database

    async def fetch(self, query: str, /, **values: Any) -> list[asyncpg.Record]:
        """The rows of the named query, in a transaction of its own. ``values``: by the names that it gives them."""
        return await self.fetch_statement(statement(query), values)

    async def fetch_statement(self, wanted: Statement, values: Mapping[str, Any]) -> list[asyncpg.Record]:
        """The rows of this statement, in a transaction of its own."""
        try:
            return await self._pool.fetch(wanted.text, *wanted.arguments(values))
        except DRIVER_ERRORS as error:
            raise translated(error, self.address) from error

    async def connect(self, settings: dict[str, str] | None = None) -> Connection:
        """A new connection outside the pool. Errors: :func:`open_connection`."""
        return await open_connection(self._dsn, self.application_name, settings)

    async def close(self) -> None:
        try:
            await asyncio.wait_for(self._pool.close(), CLOSE_TIMEOUT_S)
        except TimeoutError:
            self._pool.terminate()


def _session(application_name: str) -> dict[str, str]:
    # Compiling a plan to machine code takes longer than any statement here runs.
    return {"application_name": application_name, "jit": "off"}


async def _json_as_bytes(connection: Any) -> None:
    await connection.set_type_codec("json", schema="pg_catalog", encoder=bytes, decoder=bytes, format="binary")


async def _nothing_to_reset(connection: Any) -> None:
    """No statement here changes its session, and asyncpg's own reset would cost a round trip a statement."""
