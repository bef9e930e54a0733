"""An empty Postgres is filled from EVENTS (PROTOCOL §1 *Journal*)."""

from __future__ import annotations

from noetl_stream.errors import Conflict
from noetl_stream.model.ids import PARTITIONS
from noetl_stream.server.recovery import Restored
from noetl_stream.server.server import Server


async def rebuild(server: Server) -> Restored:
    """Takes all partitions over, restores what EVENTS holds of them, and releases them. The server does not run.

    What no record holds is folded when servers run: inputs that were not folded, and all beyond a hole in a journal.

    Raises:
        Conflict: Postgres holds executions, or a server owns partitions.
        NotReady: a store is not set up, or a newer server has written records.
        Unreachable: a store is away.
    """
    store, ownership = server.ports.store, server.ownership
    await store.verify()
    await server.ports.log.verify()
    if newest := await store.newest_execution():
        raise Conflict(
            f"Postgres is not empty: it holds execution {newest}",
            hint="rebuild a database that was just migrated; one that is behind EVENTS catches up when servers start",
        )
    try:
        taken = await ownership.take(PARTITIONS, server.ports.clock.monotonic_s())
        if len(taken) < PARTITIONS:
            raise Conflict(f"servers own {PARTITIONS - len(taken)} partitions", hint="stop the servers and repeat")
        restored = await server.recovery.catch_up(taken)
    finally:
        await ownership.release(list(ownership.ids), {})
        await server.inputs.close()
        await server.ports.evaluator.close()
    return Restored(sum(one.executions for one in restored.values()), sum(one.entries for one in restored.values()))
