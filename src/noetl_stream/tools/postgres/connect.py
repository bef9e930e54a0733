"""Connects to a Postgres database through the egress guard."""

from __future__ import annotations

import asyncio
import contextlib
import os
import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from noetl_stream.tools.egress import Egress, Reach
from noetl_stream.tools.postgres.address import Host, PostgresAddress
from noetl_stream.tools.postgres.received_bytes import CountingLoop

if TYPE_CHECKING:
    import asyncpg
    from asyncpg.pool import PoolConnectionProxy
    from asyncpg.prepared_stmt import PreparedStatement

CANCEL_AGAIN_S: Final = 1.0
MAX_CANCELLATIONS: Final = 5
_BY_THE_DRIVER: Final = ("disable", "allow", "prefer")
"""The TLS modes without verification, for which the driver makes the context."""


class _NamedContext(ssl.SSLContext):
    """A TLS context for the host ``name``: the driver knows only the checked address that it connects to."""

    name = ""

    def wrap_bio(self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, *given: Any, **named: Any) -> ssl.SSLObject:
        return super().wrap_bio(incoming, outgoing, server_hostname=self.name, session=named.get("session"))


async def connect(
    address: PostgresAddress, egress: Egress, reach: Reach, **more: Any
) -> asyncpg.Connection[asyncpg.Record]:
    """Connects to the first host that accepts a connection, at its present addresses.

    Args:
        more: The pool's arguments to the driver.

    Raises:
        ForbiddenAddress, OSError: no host can be reached; the last one's reason.
        asyncpg.PostgresError, asyncpg.InterfaceError: an error of the database or the driver.
    """
    import asyncpg

    *others, last = address.hosts
    for host in others:
        try:
            return await _connect_to(host, address, egress, reach, more)
        except (OSError, asyncpg.TargetServerAttributeNotMatched, asyncpg.CannotConnectNowError):
            continue
    return await _connect_to(last, address, egress, reach, more)


async def _connect_to(
    host: Host, address: PostgresAddress, egress: Egress, reach: Reach, more: Mapping[str, Any]
) -> asyncpg.Connection[asyncpg.Record]:
    import asyncpg

    if host.name.startswith("/"):
        places = [_socket_of(host)]
        egress.check_socket(places[0], reach)
    else:
        places = await egress.addresses(host.name, host.port, reach)
    # Every parameter is given, so that the driver looks for nothing in the worker's variables and files.
    complete: dict[str, Any] = {
        "host": places,
        "port": [host.port] * len(places),
        "user": address.user,
        "password": address.password,
        "database": address.database,
        "ssl": address.sslmode if address.sslmode in _BY_THE_DRIVER else _tls(host.name, address),
        "target_session_attrs": address.target,
        "loop": CountingLoop(),
    }
    return await asyncpg.connect(**{**more, **complete})


async def first_rows(
    prepared: PreparedStatement[asyncpg.Record], values: Sequence[Any], count: int, timeout_s: float | None
) -> list[Any]:
    """Runs a statement and returns its first rows, so that one without LIMIT cannot fill the worker's memory.

    The driver's public methods have no bound, or need a transaction, in which ``CALL`` cannot commit.
    """
    rows: list[Any] = await prepared._PreparedStatement__bind_execute(values, count, timeout_s)  # type: ignore[attr-defined]  # noqa: SLF001
    return rows


@contextlib.asynccontextmanager
async def statements_on(
    connection: PoolConnectionProxy[asyncpg.Record], *, in_transaction: bool
) -> AsyncIterator[None]:
    """Runs statements in one transaction or each in its own, until they end, fail or are cancelled."""
    driver: Any = connection._con  # type: ignore[attr-defined]  # noqa: SLF001
    transaction = driver.transaction() if in_transaction else None
    if transaction is not None:
        await transaction.start()
    try:
        yield
    except BaseException:
        await _end_cancelled(driver)
        if transaction is not None and not driver.is_closed():
            await transaction.rollback()
        raise
    if transaction is not None:
        await transaction.commit()


async def _end_cancelled(driver: Any) -> None:
    """Waits for the end of a cancelled statement, if any; closes the connection if it continues.

    Postgres ignores a cancellation that arrives before the statement, so it is sent again every :data:`CANCEL_AGAIN_S`
    seconds. The driver sends it once, and would wait for as long as the statement takes.
    """
    try:
        for _ in range(MAX_CANCELLATIONS):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CANCEL_AGAIN_S):
                    await driver._protocol._wait_for_cancellation()  # noqa: SLF001
                    return
            driver._cancel_current_command(asyncio.get_running_loop().create_future())  # noqa: SLF001
    except asyncio.CancelledError:
        driver.terminate()
        raise
    driver.terminate()


def _socket_of(host: Host) -> str:
    return f"{os.path.normpath(host.name)}/.s.PGSQL.{host.port}"


def _tls(name: str, address: PostgresAddress) -> ssl.SSLContext:
    """Returns the context of the TLS modes. Without a file, certificates are verified by the system's store."""
    context = _NamedContext(ssl.PROTOCOL_TLS_CLIENT)
    context.name = name
    files = dict(address.files)
    context.check_hostname = address.sslmode == "verify-full"
    if address.sslmode == "require" and "sslrootcert" not in files:
        context.verify_mode = ssl.CERT_NONE
    elif "sslrootcert" in files:
        context.load_verify_locations(files["sslrootcert"])
    else:
        context.load_default_certs()
    if "sslcert" in files:
        context.load_cert_chain(files["sslcert"], files.get("sslkey"))
    return context
