"""The Postgres roles of servers, gateways and readers, and the users that `noetl-stream setup` makes members of them.

Roles have no login; ``grants/<role>.sql`` lists the permissions of each, table by table. Roles belong to a whole
Postgres, and grants to one database: ``database migrate --roles`` creates the roles, and every migration gives the
grants to those that exist. A table of a later migration is open to no role until its grant is written.
"""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import asyncpg
import msgspec

from noetl_stream.adapters.postgres.connections.database import separate_connection, shown_address
from noetl_stream.adapters.postgres.connections.hosts import Connection
from noetl_stream.adapters.postgres.statements import fetch_on
from noetl_stream.errors import LoginRefused, NotReady

SERVER: Final = "noetl_server"
GATEWAY: Final = "noetl_gateway"
READER: Final = "noetl_reader"
GRANTS: Final = Path(__file__).with_name("grants")

ROLES: Final = (SERVER, GATEWAY, READER)

_SETUP: Final = "noetl-stream setup"

_REVOKE: Final = """
revoke all on all tables in schema noetl from {role};
revoke all on all sequences in schema noetl from {role};
revoke all on all functions in schema noetl from {role}, public;
revoke all on schema noetl from {role};
"""


@cache
def grants(role: str) -> str:
    """Returns the text of ``grants/<role>.sql``."""
    return (GRANTS / f"{role}.sql").read_text(encoding="utf-8")


async def create_roles(connection: Connection) -> list[str]:
    """Creates the missing Postgres roles; returns their names.

    Raises:
        NotReady: The user may not create roles.
    """
    missing = [role for role in ROLES if role not in await _existing(connection)]
    for role in missing:
        try:
            await connection.execute(f"create role {role} nologin")
        except asyncpg.DuplicateObjectError:  # created just now, for another database
            continue
        except asyncpg.InsufficientPrivilegeError:
            raise NotReady(
                f"this user may not create the role {role}",
                hint=f"as a user who may: CREATE ROLE {'; CREATE ROLE '.join(missing)}; then run it again",
            ) from None
    return missing


async def give_grants(connection: Connection) -> None:
    """Gives each existing role exactly its grants, unless it has them."""
    roles = await _existing(connection)
    texts = [_REVOKE.format(role=role) + grants(role) for role in roles]
    checksum = hashlib.sha256("".join(texts).encode()).hexdigest() if texts else ""
    async with connection.transaction():
        if await fetch_on(connection, "record_grants", {"grants": checksum}):
            for text in texts:
                await connection.execute(text)


async def _existing(connection: Connection) -> list[str]:
    return [row[0] for row in await fetch_on(connection, "existing_roles", {"roles": ROLES})]


class SetupRights(msgspec.Struct, frozen=True, gc=False):
    """The rights of an address's user, and the existing roles and users."""

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
        NotReady: the server is too old or a standby, or this user may not create the schema.
    """
    address = shown_address(dsn)
    async with separate_connection(dsn, _SETUP) as connection:
        found = SetupRights(**dict((await fetch_on(connection, "setup_rights"))[0]))
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
    parts = urlsplit(dsn)
    hosts = parts.netloc.rpartition("@")[2]
    others = [(name, value) for name, value in parse_qsl(parts.query) if name not in ("user", "password", "passfile")]
    return urlunsplit(parts._replace(netloc=f"{user}:{password}@{hosts}", query=urlencode(others, safe="/,:")))


async def may_log_in(dsn: str) -> bool:
    """Returns whether the user of a DSN may log in. Raises Unreachable if Postgres does not answer."""
    try:
        async with separate_connection(dsn, _SETUP):
            return True
    except (LoginRefused, NotReady):  # the database may be closed to the user
        return False


async def make_user(owner_dsn: str, user: str, verifier: str, role: str) -> bool:
    """Creates a user who is a member of the role, or sets an existing one's password; returns whether that is
    permitted.

    Args:
        verifier: The password's verifier, as Postgres stores it.
    """
    async with separate_connection(owner_dsn, _SETUP) as connection:
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
    async with separate_connection(owner_dsn, _SETUP) as connection:
        await connection.execute(f"drop role if exists {user}")
