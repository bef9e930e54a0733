"""A Postgres connection that is used for one purpose, one call at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from noetl_stream.adapters.postgres.connections.database import CLOSE_TIMEOUT_S, Database
from noetl_stream.adapters.postgres.connections.failures import DRIVER_ERRORS, was_answered
from noetl_stream.adapters.postgres.connections.hosts import Connection
from noetl_stream.errors import NotReady

_Answer = TypeVar("_Answer")


class OwnConnection:
    """A connection opened by the first call, and by the first after a failure.

    Attributes:
        discarded: Backends of connections that were given up: their statements may still run.
    """

    def __init__(self, database: Database, settings: dict[str, str]) -> None:
        self._database = database
        self._settings = settings
        self._connection: Connection | None = None
        self._alone = asyncio.Lock()
        self.discarded: set[int] = set()

    @property
    def open_backend(self) -> int | None:
        """The process id of the connection's backend; ``None`` if it is not open."""
        connection = self._connection
        return None if connection is None or connection.is_closed() else connection.get_server_pid()

    async def backend(self) -> int:
        """Returns :attr:`open_backend`; opens the connection if necessary. Raises as :meth:`Database.connect` does."""
        found = self.open_backend
        return await self.use(_backend_of) if found is None else found

    async def use(self, work: Callable[[Connection], Awaitable[_Answer]]) -> _Answer:
        """Returns the result of ``work`` on the connection. Raises the driver's errors.

        Raises:
            NotReady: the connection goes through a pooler, such as PgBouncer.
        """
        async with self._alone:
            if self._connection is None or self._connection.is_closed():
                self._connection = await self._open()
            connection = self._connection
            backend = connection.get_server_pid()
            try:
                with self._database.overdue.watching(connection):
                    return await work(connection)
            except BaseException as error:  # a cancelled call leaves its statement running, too
                if not was_answered(error):
                    self.discarded.add(backend)
                connection.terminate()
                raise

    async def _open(self) -> Connection:
        connection = await self._database.connect(self._settings)
        try:
            if await connection.fetchval("select pg_backend_pid()") == connection.get_server_pid():
                return connection
        except BaseException:
            connection.terminate()
            raise
        connection.terminate()
        raise NotReady(
            f"a pooler is between this server and Postgres at {self._database.address}",
            hint="connect servers to Postgres itself: they end transactions by the process ids of Postgres",
        )

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            try:
                await connection.close(timeout=CLOSE_TIMEOUT_S)
            except DRIVER_ERRORS:
                connection.terminate()


async def _backend_of(connection: Connection) -> int:
    return connection.get_server_pid()
