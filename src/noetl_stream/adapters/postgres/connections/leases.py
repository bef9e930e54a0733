"""The connection on which a server keeps its leases, whatever its ticks do (PROTOCOL §7 *Renewal apart from work*)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from operator import attrgetter
from typing import Any, Final, TypeVar

import asyncpg

from noetl_stream.adapters.postgres.connections.database import Database
from noetl_stream.adapters.postgres.connections.failures import DRIVER_ERRORS, translate_error
from noetl_stream.adapters.postgres.connections.hosts import Connection
from noetl_stream.adapters.postgres.connections.own_connection import OwnConnection
from noetl_stream.adapters.postgres.statements import statement
from noetl_stream.ports.stores.store import LONGEST_LEASE_S, PartitionLease

SESSION: Final = {"lock_timeout": "2000"}
"""How long a renewal waits for a tick of its own server: no longer than until the next renewal is due."""

_Answer = TypeVar("_Answer")


class Leases:
    """The methods of :class:`~noetl_stream.ports.stores.store.Store` that keep leases; the port documents each.

    Args:
        ticks: The connection for commits of ticks and takeovers, which must not delay renewals. Rows name its backend,
            so that another server can end it.
    """

    def __init__(self, database: Database, ticks: OwnConnection) -> None:
        self._database = database
        self._ticks = ticks
        self._own = OwnConnection(database, SESSION)

    async def take_over(
        self, owner: str, lease_s: float, limit: int, alive: Collection[str] = (), left: Collection[int] = ()
    ) -> list[PartitionLease]:
        """Takes over free partitions, sorted by id."""
        values = {
            "owner": owner,
            "backend": await self._ticks.backend(),
            "lease_s": lease_s,
            "longest_s": LONGEST_LEASE_S,
            "limit": limit,
            "alive": list(alive),
            "left": list(left),
        }
        rows = await self._fetch_on(self._ticks, "take_over", values)
        return sorted((PartitionLease(*row) for row in rows), key=attrgetter("id"))

    async def renew(self, owner: str, epochs: Sequence[tuple[int, int]], lease_s: float) -> set[int]:
        """Renews leases. A tick of the owner delays only its own partitions, which nobody can take meanwhile."""
        values = {"owner": owner, "backend": self._ticks.open_backend, "lease_s": lease_s}
        rows = await self._fetch("renew", **values, **_arrays(epochs))
        renewed = {row["id"] for row in rows if row["is_renewed"]}
        locked = [(row["id"], row["epoch"]) for row in rows if not row["is_renewed"]]
        if locked:
            renewed |= await self._renewed_once_free(locked, values)
        return renewed

    async def give_back(self, owner: str, epochs: Sequence[tuple[int, int]], published: Sequence[int]) -> None:
        await self._fetch("give_back", owner=owner, published_ticks=published, **_arrays(epochs))

    async def end_frozen(self, alive: Collection[str]) -> list[str]:
        return [row[0] for row in await self._fetch_on(self._ticks, "end_frozen", {"alive": list(alive)})]

    async def clock_ms(self) -> int:
        return int((await self._fetch("now_ms"))[0][0])

    async def close(self) -> None:
        await self._own.close()

    async def _renewed_once_free(self, locked: Sequence[tuple[int, int]], values: dict[str, Any]) -> set[int]:
        """Returns which of these partitions are still owned; all of them if they are still locked after a while."""
        wanted = statement("renew_locked")
        arguments = wanted.arguments(values | _arrays(locked))

        async def renew(connection: Connection) -> set[int]:
            try:
                return {row["id"] for row in await connection.fetch(wanted.text, *arguments)}
            except asyncpg.LockNotAvailableError:
                return {id for id, _ in locked}

        return await self._use(renew, self._own)

    async def _fetch(self, query: str, /, **values: Any) -> list[asyncpg.Record]:
        return await self._fetch_on(self._own, query, values)

    async def _fetch_on(self, own: OwnConnection, query: str, values: dict[str, Any]) -> list[asyncpg.Record]:
        wanted = statement(query)
        arguments = wanted.arguments(values)
        return await self._use(lambda connection: connection.fetch(wanted.text, *arguments), own)

    async def _use(self, work: Callable[[Connection], Awaitable[_Answer]], own: OwnConnection) -> _Answer:
        try:
            return await own.use(work)
        except DRIVER_ERRORS as error:
            raise translate_error(error, self._database.address) from error


def _arrays(epochs: Sequence[tuple[int, int]]) -> dict[str, list[int]]:
    return {"partition_ids": [id for id, _ in epochs], "epochs": [epoch for _, epoch in epochs]}
