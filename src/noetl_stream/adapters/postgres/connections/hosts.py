"""Connects to the first Postgres host of several that answers, and ends connections to a host that has gone silent.

asyncpg tries one host after another within one timeout: a silent host, as on a dead machine, would keep it from the
next. After a failover, packets to a host that is dead or cut off get no reply, and TCP would wait for many minutes;
another connection therefore checks whether an overdue statement still runs. While none is answered, statements of a
role that answers requests fail rather than wait.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
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

SILENT_S: Final = 8.0
"""The time without an answer to any look after which Postgres counts as silent."""


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

    While Postgres is silent, whatever waits for a connection fails too, and what runs.

    Args:
        connect: Opens a connection to look for statements.
        expire: Prevents the reuse of all existing connections.
        silent_s: The time without an answer after which Postgres counts as silent.

    Attributes:
        is_silent: Whether Postgres is silent.
    """

    def __init__(
        self,
        connect: Callable[[], Awaitable[Connection]],
        address: str,
        expire: Callable[[], Awaitable[None]],
        silent_s: float = math.inf,
    ) -> None:
        self._connect = connect
        self._expire = expire
        self._address = address
        self._silent_s = silent_s
        self.is_silent = False
        self._overdue: dict[Watched, bool] = {}
        """The connections to look for, and whether their statement was missing at the last look."""
        self._waiting: dict[asyncio.Timeout, bool] = {}
        """The waits for a connection, and whether they are overdue."""
        self._looking: asyncio.Task[None] | None = None

    @contextmanager
    def watching(self, connection: Watched) -> Iterator[None]:
        """Terminates the connection if its statement is lost in this block, or Postgres falls silent."""
        timer = asyncio.get_running_loop().call_later(OVERDUE_S, self._add, connection, self._overdue, False)
        try:
            yield
        finally:
            timer.cancel()
            self._overdue.pop(connection, None)

    @asynccontextmanager
    async def connecting(self) -> AsyncIterator[None]:
        """Must be around each wait for a connection.

        Raises:
            TimeoutError: Postgres is silent, or falls silent in this block.
        """
        if self.is_silent:
            raise TimeoutError
        async with asyncio.timeout(None) as waiting:
            timer = asyncio.get_running_loop().call_later(OVERDUE_S, self._add, waiting, self._waiting, True)
            self._waiting[waiting] = False
            try:
                yield
            finally:
                timer.cancel()
                self._waiting.pop(waiting, None)

    async def close(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.wait([self._looking])

    def _add(self, late: Any, among: dict[Any, bool], mark: bool) -> None:
        among[late] = mark
        if self._looking is None or self._looking.done():
            self._looking = asyncio.get_running_loop().create_task(self._look_until_answered())

    async def _look_until_answered(self) -> None:
        loop = asyncio.get_running_loop()
        waits, answered_s = pauses(LOOK_AGAIN_S, OVERDUE_S), loop.time()
        while self._overdue or any(self._waiting.values()) or self.is_silent:
            try:
                async with asyncio.timeout(self._silent_s):
                    await self._look()
                waits, answered_s = pauses(LOOK_AGAIN_S, OVERDUE_S), loop.time()
                self._note_answer()
                pause_s = LOOK_AGAIN_S if any(self._overdue.values()) else OVERDUE_S
            except (NoetlError, *DRIVER_ERRORS) as error:
                log.debug("looking for overdue statements: %s", error)
                pause_s = next(waits)
                if _is_answer(error):
                    answered_s = loop.time()
                    self._note_answer()
                elif loop.time() - answered_s >= self._silent_s:
                    await self._give_up()
            await asyncio.sleep(pause_s)

    def _note_answer(self) -> None:
        if self.is_silent:
            log.warning("Postgres at %s answers again", self._address)
        self.is_silent = False

    async def _give_up(self) -> None:
        """Lets all that waits for Postgres fail."""
        if not self.is_silent:
            log.warning("Postgres at %s is silent: what waits for it fails", self._address)
        self.is_silent = True
        await self._expire()
        while self._waiting:
            self._waiting.popitem()[0].reschedule(0)
        while self._overdue:
            self._overdue.popitem()[0].terminate()

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


def _is_answer(error: BaseException) -> bool:
    """Returns whether Postgres itself has refused to be looked at, as when it has too many connections."""
    return isinstance(error.__cause__ or error, asyncpg.PostgresError)
