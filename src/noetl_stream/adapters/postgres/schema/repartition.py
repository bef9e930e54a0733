"""Changes the partition count of a database that no server uses."""

from __future__ import annotations

from typing import Any, Final

from noetl_stream.adapters.postgres.connections.database import open_connection, shown_address
from noetl_stream.adapters.postgres.connections.failures import DRIVER_ERRORS, translate_error
from noetl_stream.adapters.postgres.connections.hosts import Connection
from noetl_stream.adapters.postgres.statements import statement
from noetl_stream.errors import Conflict
from noetl_stream.model.ids import partition_of

MOVED_AT_ONCE: Final = 10_000


async def repartition(dsn: str, count: int, last_seq: int) -> int:
    """Moves every execution to its partition of ``count``, in one transaction.

    Args:
        last_seq: The last message of EVENTS. All messages up to it are folded, and will be removed.

    Returns:
        How many executions the database names.

    Raises:
        Conflict: a server owns a partition.
        Unreachable: no answer, or refused.
    """
    address = shown_address(dsn)
    connection = await open_connection(dsn, "noetl-stream database repartition")
    try:
        async with connection.transaction():
            await connection.execute("lock table noetl.partition, noetl.meta in access exclusive mode")
            living = [row[0] for row in await _fetch(connection, "living_owners")]
            if living:
                raise Conflict(f"servers own partitions: {', '.join(living)}", hint="stop the servers and repeat")
            moved = await _move_executions(connection, count)
            former = dict((await _fetch(connection, "drop_partitions"))[0])
            await _fetch(connection, "make_partitions", count=count, last_seq=last_seq, **former)
            return moved
    except DRIVER_ERRORS as error:
        raise translate_error(error, address) from error
    finally:
        await connection.close()


async def _move_executions(connection: Connection, count: int) -> int:
    moved, after = 0, ""
    while ids := [row[0] for row in await _fetch(connection, "executions_after", after=after, limit=MOVED_AT_ONCE)]:
        partitions = [partition_of(one, count) for one in ids]
        await _fetch(connection, "move_executions", execution_ids=ids, partitions=partitions)
        moved, after = moved + len(ids), ids[-1]
    return moved


async def _fetch(connection: Connection, query: str, /, **values: Any) -> list[Any]:
    wanted = statement(query)
    return await connection.fetch(wanted.text, *wanted.arguments(values))
