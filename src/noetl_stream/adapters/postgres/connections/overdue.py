"""Statements whose answer is overdue, because the host of their connection has gone silently.

After a fail-over, packets to a host that is dead or cut off get no reply: TCP would wait for many minutes. So another
connection asks whether the statement still runs.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, TypeAlias

from noetl_stream.adapters.postgres.connections.failures import DRIVER_ERRORS
from noetl_stream.adapters.postgres.statements import statement
from noetl_stream.errors import NoetlError

if TYPE_CHECKING:
    import asyncpg

    from noetl_stream.adapters.postgres.connections.hosts import Connection

    Watched: TypeAlias = Connection | asyncpg.pool.PoolConnectionProxy[asyncpg.Record]

log = logging.getLogger(__name__)

OVERDUE_S: Final = 2.0
"""How long a statement may run before it is looked for, and again if it still runs."""

LOOK_AGAIN_S: Final = 0.5
"""How soon a statement that was not found is looked for again, or one whose look failed."""

LOOK_TIMEOUT_S: Final = 5.0


class OverdueStatements:
    """Ends connections whose statement no longer runs, so that the statement fails.

    Args:
        connect: Opens a connection to look for statements.
        expire: Prevents the reuse of all existing connections.
    """

    def __init__(
        self,
        connect: Callable[[], Awaitable[Connection]],
        address: str,
        expire: Callable[[], Awaitable[None]],
    ) -> None:
        self._connect = connect
        self._expire = expire
        self._address = address
        self._overdue: dict[Watched, bool] = {}
        """The connections to look for, and whether their statement was missing at the last look."""
        self._looking: asyncio.Task[None] | None = None

    @contextmanager
    def watching(self, connection: Watched) -> Iterator[None]:
        """Terminates the connection if its statement is lost in this block."""
        timer = asyncio.get_running_loop().call_later(OVERDUE_S, self._add, connection)
        try:
            yield
        finally:
            timer.cancel()
            self._overdue.pop(connection, None)

    async def close(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.wait([self._looking])

    def _add(self, connection: Watched) -> None:
        self._overdue[connection] = False
        if self._looking is None or self._looking.done():
            self._looking = asyncio.get_running_loop().create_task(self._look_until_answered())

    async def _look_until_answered(self) -> None:
        while self._overdue:
            pause_s = LOOK_AGAIN_S
            try:
                await self._look()
                if not any(self._overdue.values()):
                    pause_s = OVERDUE_S
            except (NoetlError, *DRIVER_ERRORS) as error:
                log.debug("looking for overdue statements: %s", error)
            await asyncio.sleep(pause_s)

    async def _look(self) -> None:
        asking = await self._connect()
        own = asking.get_server_pid()
        try:
            pids = [connection.get_server_pid() for connection in self._overdue]
            wanted = statement("working_backends")
            arguments = wanted.arguments({"backends": pids})
            rows = await asking.fetch(wanted.text, *arguments, timeout=LOOK_TIMEOUT_S)
        finally:
            asking.terminate()
        working = {row["pid"] for row in rows}
        if own not in working:
            return  # a pooler is between: its process ids are not Postgres'
        for connection, was_missing in list(self._overdue.items()):
            if connection.get_server_pid() in working:
                self._overdue[connection] = False
            elif not was_missing:
                self._overdue[connection] = True  # the answer may be on its way
            else:
                log.warning("Postgres at %s no longer runs a statement of ours: connecting again", self._address)
                self._overdue.pop(connection)
                await self._expire()
                connection.terminate()
