"""Database users for servers and gateways, which `noetl-stream setup` makes in addition to the schema."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import asyncpg
import msgspec

from noetl_stream.adapters.postgres.connections.database import CLOSE_TIMEOUT_S, open_connection, shown_address
from noetl_stream.adapters.postgres.connections.failures import DRIVER_ERRORS, translate_error
from noetl_stream.adapters.postgres.connections.hosts import Connection
from noetl_stream.adapters.postgres.statements import statement
from noetl_stream.errors import LoginRefused, NotReady

_NAME: Final = "noetl-stream setup"


class SetupRights(msgspec.Struct, frozen=True, gc=False):
    """The rights of an address' user, and which roles and users exist."""

    name: str
    database: str
    is_standby: bool
    has_schema: bool
    may_migrate: bool
    may_create_roles: bool


async def setup_rights(dsn: str) -> SetupRights:
    """Reads the rights of an address' user.

    Raises:
        Unreachable: no answer, or refused.
        NotReady: the server is too old or a standby, or this user may not make the schema.
    """
    address = shown_address(dsn)
    async with _connection(dsn) as connection:
        found = SetupRights(**dict((await connection.fetch(statement("setup_rights").text))[0]))
    if found.is_standby:
        raise NotReady(f"Postgres at {address} is a standby", hint="name the primary")
    if not found.may_migrate:
        raise NotReady(
            f"Postgres at {address}: the user {found.name} may not make the schema noetl",
            hint="use the owner of the schema, or allow it as an administrator: GRANT CREATE ON DATABASE "
            f'"{found.database}" TO "{found.name}"',
        )
    return found


def dsn_of_user(dsn: str, user: str, password: str) -> str:
    """Returns the DSN with another user."""
    parts = urlsplit(dsn)
    hosts = parts.netloc.rpartition("@")[2]
    others = [(name, value) for name, value in parse_qsl(parts.query) if name not in ("user", "password", "passfile")]
    return urlunsplit(parts._replace(netloc=f"{user}:{password}@{hosts}", query=urlencode(others, safe="/,:")))


async def may_log_in(dsn: str) -> bool:
    """Returns whether the user of a DSN may log in. Raises Unreachable if Postgres does not answer."""
    try:
        async with _connection(dsn):
            return True
    except (LoginRefused, NotReady):  # the database may be closed to the user
        return False


async def make_user(owner_dsn: str, user: str, verifier: str, role: str) -> bool:
    """Makes a user who is a member of the role, or sets an existing one's password; returns whether that is allowed.

    Args:
        verifier: The password's verifier, as Postgres stores it.
    """
    async with _connection(owner_dsn) as connection:
        exists = await connection.fetchval("select 1 from pg_roles where rolname = $1", user)
        verb = "alter" if exists else "create"
        try:
            async with connection.transaction():
                await connection.execute(f"{verb} role {user} login password '{verifier}'")
                await connection.execute(f"grant {role} to {user}")
        except asyncpg.InsufficientPrivilegeError:
            return False
        return True


async def drop_user(owner_dsn: str, user: str) -> None:
    """Drops a user who owns nothing."""
    async with _connection(owner_dsn) as connection:
        await connection.execute(f"drop role if exists {user}")


@asynccontextmanager
async def _connection(dsn: str) -> AsyncIterator[Connection]:
    connection = await open_connection(dsn, _NAME)
    try:
        yield connection
    except DRIVER_ERRORS as error:
        raise translate_error(error, shown_address(dsn)) from error
    finally:
        await connection.close(timeout=CLOSE_TIMEOUT_S)
