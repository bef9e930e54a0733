"""Connections of ``kind: postgres``: one small pool for each database a credential leads to."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, Final

from noetl_stream.model.outcome import ErrorInfo
from noetl_stream.tools.auth import Auth, bad_credential, text_entry
from noetl_stream.tools.contract import ToolFailure

if TYPE_CHECKING:
    import asyncpg

    Connection = asyncpg.pool.PoolConnectionProxy[asyncpg.Record]
    Pool = asyncpg.Pool[asyncpg.Record]

MAX_CONNECTIONS: Final = 8
"""Connections a worker opens to one database; further tasks wait for a free one."""
DEFAULT_CONNECT_TIMEOUT_S: Final = 10.0
IDLE_CONNECTION_S: Final = 60.0
CLOSE_TIMEOUT_S: Final = 5.0

_KEYS: Final = ("host", "user", "password", "database", "sslmode")
_SHAPES: Final = "give a DSN, {dsn}, or {host, port, user, password, database, sslmode}"

Options = dict[str, Any]


def options_of(auth: Auth, credential: str | dict[str, Any]) -> Options:
    """What the driver needs to connect.

    Raises:
        ToolFailure: ``credential``, if it is none of a database.
    """
    if isinstance(credential, str):
        credential = {"dsn": credential}
    if "dsn" in credential:
        dsn = text_entry(auth, credential, "dsn")
        if len(credential) > 1 or not dsn or not dsn.startswith(("postgresql://", "postgres://")):
            raise bad_credential(auth, "its DSN must start with postgresql:// and stand alone")
        return {"dsn": dsn}
    unknown = sorted(set(credential) - {*_KEYS, "port"})
    if unknown or not credential.get("host"):
        raise bad_credential(auth, f"is none a postgres task can use; {_SHAPES}")
    options: Options = {key: text_entry(auth, credential, key) for key in _KEYS if credential.get(key) is not None}
    if "sslmode" in options:
        options["ssl"] = options.pop("sslmode")
    port = credential.get("port", 5432)
    if not str(port).isdecimal() or not 0 < int(port) < 65_536:
        raise bad_credential(auth, "port must be a number from 1 to 65535")
    return {**options, "port": int(port)}


class ConnectionPools:
    """The pools of one worker, each made when it is first asked for."""

    def __init__(self) -> None:
        self._pools: dict[str, asyncio.Task[Pool]] = {}

    @contextlib.asynccontextmanager
    async def connection(self, auth: Auth, options: Options, timeout_s: float | None) -> AsyncIterator[Connection]:
        """A connection for one task. Leaving rolls back what is open and undoes what was set.

        Args:
            timeout_s: How long to wait for a connection, free or new; :data:`DEFAULT_CONNECT_TIMEOUT_S` if ``None``.

        Raises:
            ToolFailure: ``connection``, ``timeout`` or ``credential``.
        """
        timeout_s = timeout_s or DEFAULT_CONNECT_TIMEOUT_S
        pool = await self._pool(options)
        connection = await _acquired(pool, auth, timeout_s)
        try:
            yield connection
        finally:
            await _released(pool, connection)

    async def close(self) -> None:
        """Closes every connection; those in use are given :data:`CLOSE_TIMEOUT_S` to end."""
        pools = [await made for made in self._pools.values()]
        self._pools.clear()
        await asyncio.gather(*(_close(pool) for pool in pools))

    async def _pool(self, options: Options) -> Pool:
        key = json.dumps(options, sort_keys=True)
        if key not in self._pools:
            self._pools[key] = asyncio.get_running_loop().create_task(_new_pool(options))
        return await asyncio.shield(self._pools[key])


async def _new_pool(options: Options) -> Pool:
    import asyncpg

    # Without connections at first, so this waits for nothing; statements are prepared one by one, in the open.
    return await asyncpg.create_pool(
        **options,
        min_size=0,
        max_size=MAX_CONNECTIONS,
        max_inactive_connection_lifetime=IDLE_CONNECTION_S,
        statement_cache_size=0,
        server_settings={"application_name": "noetl-stream"},
        reset=_forget,
    )


async def _forget(connection: asyncpg.Connection[asyncpg.Record]) -> None:
    """Everything a task may have left in its session: settings, roles, temporary tables, locks."""
    await connection.execute("discard all")


async def _released(pool: Pool, connection: Connection) -> None:
    """Gives a connection back. One that cannot be reset is closed by the pool; what the task did is not its fault."""
    import asyncpg

    with contextlib.suppress(asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError):
        await pool.release(connection)


async def _acquired(pool: Pool, auth: Auth, timeout_s: float) -> Connection:
    import asyncpg

    try:
        connection: Connection = await pool.acquire(timeout=timeout_s)
    except TimeoutError:
        error = ErrorInfo(kind="timeout", message=f"no database connection within {timeout_s:g} s", retryable=True)
        raise ToolFailure(error) from None
    except (asyncpg.InvalidAuthorizationSpecificationError, asyncpg.InvalidCatalogNameError) as error:
        raise bad_credential(auth, f"the database refused it: {error}") from None
    except asyncpg.PostgresError as error:
        # Starting up, shutting down, too many connections: it may be different soon.
        raise _unreachable(str(error), code=error.sqlstate) from None
    except asyncpg.ClientConfigurationError:
        raise bad_credential(auth, f"cannot be read as the address of a database; {_SHAPES}") from None
    except (OSError, asyncpg.InterfaceError, asyncpg.InternalClientError) as error:
        raise _unreachable(str(error) or type(error).__name__) from None
    except (ValueError, OverflowError):
        raise bad_credential(auth, f"cannot be read as the address of a database; {_SHAPES}") from None
    return connection


def _unreachable(reason: str, code: str | None = None) -> ToolFailure:
    message = f"the database cannot be reached: {reason}"
    helper = {"code": code, "sqlstate": code, "message": reason} if code else {}
    return ToolFailure(ErrorInfo(kind="connection", message=message, retryable=True, code=code), helper=helper)


async def _close(pool: Pool) -> None:
    try:
        await asyncio.wait_for(pool.close(), CLOSE_TIMEOUT_S)
    except TimeoutError:
        pool.terminate()
