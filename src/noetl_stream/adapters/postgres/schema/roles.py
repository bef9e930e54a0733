"""The Postgres roles of servers, gateways and readers. ``grants/<role>.sql`` says what each may do, table by table.

They are group roles without a login: an operator makes users who are members. Roles belong to a whole Postgres, grants
to one database: ``database migrate --roles`` creates the roles, and every migration gives the grants to those that
exist. A table of a later migration is open to no role until its grant is written.
"""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from typing import Final

import asyncpg

from noetl_stream.adapters.postgres.connections.hosts import Connection
from noetl_stream.adapters.postgres.statements import statement
from noetl_stream.errors import NotReady

SERVER: Final = "noetl_server"
GATEWAY: Final = "noetl_gateway"
READER: Final = "noetl_reader"
GRANTS: Final = Path(__file__).with_name("grants")

ROLES: Final = (SERVER, GATEWAY, READER)

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
        except asyncpg.DuplicateObjectError:  # just now, for another database
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
    given = statement("record_grants")
    async with connection.transaction():
        if await connection.fetch(given.text, *given.arguments({"grants": checksum})):
            for text in texts:
                await connection.execute(text)


async def _existing(connection: Connection) -> list[str]:
    wanted = statement("existing_roles")
    return [row[0] for row in await connection.fetch(wanted.text, *wanted.arguments({"roles": ROLES}))]
