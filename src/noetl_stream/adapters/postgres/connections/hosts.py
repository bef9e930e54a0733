"""Connects to the first Postgres host of several that answers, and ends connections to a host that has gone silent.

asyncpg tries one host after another within one timeout: a silent host, as on a dead machine, would keep it from the
next. After a failover, packets to a host that is dead or cut off get no reply, and TCP would wait for many minutes;
another connection therefore checks whether an overdue statement still runs.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit, urlunsplit

import asyncpg

from noetl_stream.adapters.postgres.connections.failures import DRIVER_ERRORS
from noetl_stream.adapters.postgres.statements import fetch_on
from noetl_stream.concurrency import end_tasks
from noetl_stream.errors import NoetlError
from noetl_stream.retries import pauses

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
Watched: TypeAlias = "Connection | asyncpg.pool.PoolConnectionProxy[asyncpg.Record]"

log = logging.getLogger(__name__)

NEXT_HOST_AFTER_S: Final = 0.5
"""The silence of a host after which the next is tried as well."""

ASK_AGAIN_S: Final = 0.5
"""The delay before a host that has refused is tried again while another is silent: a standby may be promoted."""

OVERDUE_S: Final = 2.0
"""The runtime of a statement after which it is looked for, repeatedly while it runs."""

LOOK_AGAIN_S: Final = 0.5
"""The delay before a missing statement, or one whose check failed, is looked for again."""

LOOK_TIMEOUT_S: Final = 5.0


def host_names(dsn: str) -> list[str]:
    """Returns the hosts of ``dsn`` with their ports."""
    return urlsplit(dsn).netloc.rpartition("@")[2].split(",")


def by_host(dsn: str) -> list[str]:
    """Returns ``dsn`` once for each of its hosts."""
    parts = urlsplit(dsn)
    user, at, _ = parts.netloc.rpartition("@")
    return [urlunsplit(parts._replace(netloc=f"{user}{at}{host}")) for host in host_names(dsn)]


async def connect(dsn: str, **given: Any) -> Connection:
    """Connects to the first host of ``dsn`` that answers and fits ``target_session_attrs``.

    If all refuse, raises the last host's error.
    """
    hosts = by_host(dsn)
    if len(hosts) == 1:
        return await asyncpg.connect(dsn, **given)
    asking = {
        asyncio.create_task(_ask(host, NEXT_HOST_AFTER_S * number, given)): number for number, host in enumerate(hosts)
    }
    refused: set[int] = set()
    try:
        while True:
            done, _ = await asyncio.wait(asking, return_when=asyncio.FIRST_COMPLETED)
            for one in done:
                error = one.exception()
                number = asking.pop(one)
                if error is None:
                    return one.result()
                refused.add(number)
                if len(refused) == len(hosts):
                    raise error
                asking[asyncio.create_task(_ask(hosts[number], ASK_AGAIN_S, given))] = number
    finally:
        await end_tasks(list(asking))
        for one in asking:
            if not one.cancelled() and one.exception() is None:
                one.result().terminate()


async def _ask(host: str, after_s: float, given: dict[str, Any]) -> Connection:
    await asyncio.sleep(after_s)
    return await asyncpg.connect(host, **given)


class OverdueStatements:
    """Ends connections whose statement no longer runs, so that the statement fails.

    Args:
        connect: Opens a connection to look for statements.
        expire: Prevents the reuse of all existing connections.
    """

    def __init__(
        self, connect: Callable[[], Awaitable[Connection]], address: str, expire: Callable[[], Awaitable[None]]
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
        waits = pauses(LOOK_AGAIN_S, OVERDUE_S)
        while self._overdue:
            try:
                await self._look()
                waits = pauses(LOOK_AGAIN_S, OVERDUE_S)
                pause_s = LOOK_AGAIN_S if any(self._overdue.values()) else OVERDUE_S
            except (NoetlError, *DRIVER_ERRORS) as error:
                log.debug("looking for overdue statements: %s", error)
                pause_s = next(waits)
            await asyncio.sleep(pause_s)

    async def _look(self) -> None:
        asking = await self._connect()
        own = asking.get_server_pid()
        try:
            pids = [connection.get_server_pid() for connection in self._overdue]
            rows = await fetch_on(asking, "working_backends", {"backends": pids}, LOOK_TIMEOUT_S)
        finally:
            asking.terminate()
        working = {row["pid"] for row in rows}
        if own not in working:
            return  # a pooler is in between: its process ids are not Postgres'
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
