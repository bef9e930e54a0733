"""Connections of ``kind: postgres``: a small pool per credential, each connection of one trust domain."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, Final, cast

from pydantic import Field

from noetl_stream.tools.capacity import Places
from noetl_stream.tools.contract import ToolCall, ToolFailure, beginning
from noetl_stream.tools.egress import Egress, ForbiddenAddress, Reach, reach_of
from noetl_stream.tools.inputs import Auth, Inputs, bad_credential, credential_of
from noetl_stream.tools.postgres.address import SHAPES, PostgresAddress, address_of
from noetl_stream.tools.postgres.codecs import set_codecs
from noetl_stream.tools.postgres.connect import connect

if TYPE_CHECKING:
    import asyncpg

    from noetl_stream.tools.postgres.domain_connection import DomainConnection

    Connection = asyncpg.pool.PoolConnectionProxy[asyncpg.Record]
    Pool = asyncpg.Pool[asyncpg.Record]

MAX_CONNECTIONS: Final = 8
"""The most connections that a worker opens to one database; further tasks wait for a free one."""
CONNECT_TIMEOUT_S: Final = 10.0
IDLE_CONNECTION_S: Final = 60.0
CLOSE_TIMEOUT_S: Final = 5.0
RESET_TIMEOUT_S: Final = 5.0

_Key = tuple[PostgresAddress, Reach]


class PoolShare(Inputs):
    """The share of a pool that the tasks with the same ``max_size`` may use."""

    max_size: int = Field(
        default=MAX_CONNECTIONS, ge=1, description="Connections to the database at the same time, at most 8."
    )
    timeout_s: float | None = Field(
        default=None, gt=0, description="Seconds to wait for a free connection. Default: as long as the task may take."
    )


class ConnectionPools:
    """The pools of one worker, created on first use.

    Args:
        egress: The rules for addresses. Default: the public internet.
    """

    def __init__(self, egress: Egress | None = None) -> None:
        self._egress = egress or Egress()
        self._pools: dict[_Key, asyncio.Task[Pool]] = {}
        self._places: dict[tuple[_Key, int], Places] = {}

    @property
    def waiting(self) -> int:
        """The number of tasks that wait for a connection."""
        return sum(places.waiting for places in self._places.values())

    @contextlib.asynccontextmanager
    async def connection(self, call: ToolCall, auth: Auth, share: PoolShare | None = None) -> AsyncIterator[Connection]:
        """Yields a connection for one task. On exit, open transactions are rolled back and session state is reset.

        Raises:
            ToolFailure: ``connection``, ``forbidden_address``, ``timeout`` or ``credential``.
        """
        credential, reach = await credential_of(call, auth), await reach_of(call, auth)
        address = address_of(auth, credential, is_operators=reach is Reach.OWN)
        key = (address, reach)
        pool = await self._pool(key)
        share = share or PoolShare()
        async with self._place(key, call, share):
            connection = await _acquire(pool, auth, call.timeouts.connect or CONNECT_TIMEOUT_S, call.trust_domain)
            try:
                yield connection
            finally:
                await _release(pool, connection)

    async def close(self) -> None:
        """Closes every connection. Those in use have :data:`CLOSE_TIMEOUT_S` to finish."""
        pools = [await pool for pool in self._pools.values()]
        self._pools.clear()
        await asyncio.gather(*(_close(pool) for pool in pools))

    @contextlib.asynccontextmanager
    async def _place(self, key: _Key, call: ToolCall, share: PoolShare) -> AsyncIterator[None]:
        """Holds one of the pool's connections, and one of the share of the tasks with the same ``max_size``."""
        async with contextlib.AsyncExitStack() as held:
            for size in sorted({min(share.max_size, MAX_CONNECTIONS), MAX_CONNECTIONS}):
                places = self._places.setdefault((key, size), Places(size, "database connection"))
                await held.enter_async_context(places.held_for(call, share.timeout_s))
            yield

    async def _pool(self, key: _Key) -> Pool:
        if key not in self._pools:
            self._pools[key] = asyncio.get_running_loop().create_task(_new_pool(*key, self._egress))
        return await asyncio.shield(self._pools[key])


async def _new_pool(address: PostgresAddress, reach: Reach, egress: Egress) -> Pool:
    import asyncpg

    from noetl_stream.tools.postgres.domain_connection import DomainConnection

    async def open_connection(dsn: str | None = None, **given: Any) -> asyncpg.Connection[asyncpg.Record]:
        made = await connect(address, egress, reach, **given)
        cast("DomainConnection", made).server = f"postgres://{address.hosts[0].name}:{address.hosts[0].port}"
        return made

    # Opens no connections yet, so it does not block. No statement cache: the tool prepares each statement itself.
    return await asyncpg.create_pool(
        connect=open_connection,
        init=set_codecs,
        min_size=0,
        max_size=MAX_CONNECTIONS,
        max_inactive_connection_lifetime=IDLE_CONNECTION_S,
        statement_cache_size=0,
        connection_class=DomainConnection,
        server_settings={**dict(address.settings), "application_name": "noetl-stream"},
        reset=_reset,
    )


async def _reset(connection: asyncpg.Connection[asyncpg.Record]) -> None:
    """Discards the session state of a task: settings, roles, temporary tables, locks."""
    await connection.execute("discard all")


async def _release(pool: Pool, connection: Connection) -> None:
    """Returns a connection to the pool, which closes one that cannot be reset. That does not fail the task."""
    import asyncpg

    with contextlib.suppress(asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError):
        await pool.release(connection, timeout=RESET_TIMEOUT_S)


async def _acquire(pool: Pool, auth: Auth, timeout_s: float, domain: str) -> Connection:
    """Opens or reuses a connection, for which there is a place."""
    import asyncpg

    try:
        async with asyncio.timeout(timeout_s):
            with beginning("open a connection"):
                return await _acquire_for(domain, pool)
    except TimeoutError:
        message = f"cannot connect to the database within {timeout_s:g} s"
        raise ToolFailure.of("timeout", message, retryable=True) from None
    except (asyncpg.InvalidAuthorizationSpecificationError, asyncpg.InvalidCatalogNameError) as error:
        raise bad_credential(auth, f"rejected by the database: {error}") from None
    except asyncpg.PostgresError as error:
        # Starting up, shutting down, too many connections: a retry may succeed.
        raise _unreachable(str(error), code=error.sqlstate) from None
    except ForbiddenAddress as error:
        raise ToolFailure.of("forbidden_address", f"cannot reach the database: {error}") from None
    except asyncpg.ClientConfigurationError:
        raise bad_credential(auth, f"is not a valid database address; {SHAPES}") from None
    except (OSError, asyncpg.InterfaceError, asyncpg.InternalClientError) as error:
        raise _unreachable(str(error) or type(error).__name__) from None
    except (ValueError, OverflowError):
        raise bad_credential(auth, f"is not a valid database address; {SHAPES}") from None


async def _acquire_for(domain: str, pool: Pool) -> Connection:
    """Returns a connection that served no other domain; those that did are closed."""
    while True:
        connection: Connection = await pool.acquire()
        if cast("DomainConnection", connection).serves(domain):
            return connection
        try:
            await connection.close()
        finally:
            await _release(pool, connection)


def _unreachable(reason: str, code: str | None = None) -> ToolFailure:
    message = f"cannot reach the database: {reason}"
    helper = {"code": code, "sqlstate": code, "message": reason} if code else {}
    return ToolFailure.of("connection", message, retryable=True, code=code, helper=helper)


async def _close(pool: Pool) -> None:
    try:
        await asyncio.wait_for(pool.close(), CLOSE_TIMEOUT_S)
    except TimeoutError:
        pool.terminate()
