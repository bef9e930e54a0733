"""Leases beside ticks that hold rows locked, on a real Postgres (PROTOCOL §5 *Frozen owner*, §7 *Renewal apart from
work*).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from noetl_stream.adapters.postgres.connections import own_connections
from noetl_stream.adapters.postgres.connections.database import Connection, Database
from noetl_stream.adapters.postgres.connections.failures import DRIVER_ERRORS
from noetl_stream.adapters.postgres.connections.own_connections import ServerConnections
from noetl_stream.adapters.postgres.store import PostgresStore
from noetl_stream.ports.stores.store import PartitionLease
from noetl_testkit.conformance.store_rows import LEASE_S
from noetl_testkit.waiting import TIMEOUT_S

TICK = "update noetl.partition set tick = tick + 1 where id = 0"
TAKEN = "update noetl.partition set epoch = epoch + 1, owner = 'two' where id = 0"
ENDED = "update noetl.partition set lease_until = now() - interval '1 minute'"


class Ticking:
    """A server as Postgres sees it: a connection that keeps its leases, and one that is in the middle of a tick.

    Attributes:
        holds: Set once the tick has locked partition 0.
        goes_on: Ends the tick when it is set.
    """

    def __init__(self, database: Database) -> None:
        self.leases = ServerConnections(database)
        self.holds = asyncio.Event()
        self.goes_on = asyncio.Event()

    async def tick(self, statement: str = TICK) -> None:
        """Idle in its transaction until it goes on."""

        async def work(connection: Connection) -> None:
            async with connection.transaction():
                await connection.execute(statement)
                self.holds.set()
                await self.goes_on.wait()

        await self.leases.ticks.use_untranslated(work)

    async def copy(self) -> None:
        """Stuck inside COPY, where no time-out of Postgres ends it."""

        async def rows() -> AsyncIterator[tuple[int, str]]:
            self.holds.set()
            await self.goes_on.wait()
            yield 0, "[]"

        async def work(connection: Connection) -> None:
            async with connection.transaction():
                await connection.execute(TICK)
                await connection.copy_records_to_table(
                    "feed", schema_name="noetl", columns=["partition", "entries"], records=rows()
                )

        await self.leases.ticks.use_untranslated(work)

    async def setting(self, name: str) -> Any:
        return await self.leases.ticks.use_untranslated(lambda connection: connection.fetchval(f"show {name}"))

    async def close(self) -> None:
        await self.leases.close()


@asynccontextmanager
async def ticking_on(dsn: str) -> AsyncIterator[Ticking]:
    database = await Database.open(dsn, "ticking")
    server = Ticking(database)
    try:
        async with asyncio.timeout(TIMEOUT_S):
            yield server
    finally:
        await server.close()
        await database.close()


@pytest.fixture
async def server(dsn: str) -> AsyncIterator[Ticking]:
    async with ticking_on(dsn) as opened:
        yield opened


async def until(watcher: Any, condition: str) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        while not await watcher.fetchval(f"select {condition} from noetl.partition"):
            pass


async def test_a_tick_holds_up_the_renewal_of_its_own_partitions_alone(server: Ticking, watcher: Any) -> None:
    held = [(lease.id, lease.epoch) for lease in await server.leases.take_over("one", LEASE_S, 4)]
    await watcher.execute(ENDED)
    ticking = asyncio.create_task(server.tick())
    await server.holds.wait()
    renewing = asyncio.create_task(server.leases.renew("one", held, LEASE_S))
    await until(watcher, "array_agg(id order by id) filter (where lease_until > now()) = '{1, 2, 3}'")
    server.goes_on.set()
    assert await renewing == {0, 1, 2, 3}
    await ticking
    await until(watcher, "count(*) filter (where lease_until > now()) = 4")


async def test_leases_held_by_a_long_tick_count_as_kept(
    server: Ticking, watcher: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(own_connections.RENEWING, "lock_timeout", "1")
    held = [(lease.id, lease.epoch) for lease in await server.leases.take_over("one", LEASE_S, 2)]
    ticking = asyncio.create_task(server.tick())
    await server.holds.wait()
    assert await server.leases.renew("one", held, LEASE_S) == {0, 1}
    server.goes_on.set()
    await ticking


async def test_partitions_taken_over_meanwhile_are_lost(server: Ticking, watcher: Any) -> None:
    held = [(lease.id, lease.epoch) for lease in await server.leases.take_over("one", LEASE_S, 2)]
    taking = asyncio.create_task(server.tick(TAKEN))
    await server.holds.wait()
    renewing = asyncio.create_task(server.leases.renew("one", held, LEASE_S))
    waiting = "exists (select from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database())"
    await until(watcher, f"bool_or({waiting})")
    server.goes_on.set()
    assert await renewing == {1}
    await taking


async def until_taken(store: PostgresStore) -> PartitionLease:
    """Partition 0, once it is free."""
    while not (found := await store.take_over("two", LEASE_S, 1)) or found[0].id != 0:
        await store.give_back("two", [(lease.id, lease.epoch) for lease in found], [0] * len(found))
    return found[0]


async def expect_lost(ticking: asyncio.Task[None]) -> None:
    with pytest.raises(DRIVER_ERRORS):
        await ticking


@pytest.mark.parametrize("where", ["between statements", "inside COPY"])
async def test_the_transaction_of_an_owner_that_is_frozen_is_ended_at_the_takeover(
    server: Ticking, postgres_store: PostgresStore, watcher: Any, where: str
) -> None:
    await server.leases.take_over("one", -LEASE_S, 1)  # it ended long ago
    ticking = asyncio.create_task(server.tick() if where == "between statements" else server.copy())
    await server.holds.wait()
    old = "exists (select from pg_stat_activity a where a.pid = backend and xact_start < now() - interval '1 second')"
    await until(watcher, f"bool_or({old})")
    assert await postgres_store.end_frozen(["one"]) == [], "it was heard of"
    assert await postgres_store.end_frozen(["two"]) == ["one"]
    lease = await until_taken(postgres_store)
    assert (lease.tick, lease.crashes) == (0, 1), "its tick was rolled back"
    server.goes_on.set()
    await expect_lost(ticking)


async def test_a_transaction_is_left_alone_while_its_lease_lasts_and_when_it_holds_no_partition(
    server: Ticking, postgres_store: PostgresStore, watcher: Any
) -> None:
    await server.leases.take_over("one", LEASE_S, 1)
    ticking = asyncio.create_task(server.tick())
    await server.holds.wait()
    old = "exists (select from pg_stat_activity a where a.pid = backend and xact_start < now() - interval '1 second')"
    await until(watcher, f"bool_or({old})")
    assert await postgres_store.end_frozen([]) == []
    server.goes_on.set()
    await ticking
    await watcher.execute(ENDED)
    server.goes_on.clear()
    server.holds.clear()
    reading = asyncio.create_task(server.tick("select from noetl.partition"))
    await server.holds.wait()
    await until(watcher, f"bool_or({old})")
    assert await postgres_store.end_frozen([]) == []
    server.goes_on.set()
    await reading


async def test_postgres_ends_a_tick_whose_server_sends_nothing_more(
    dsn: str, server: Ticking, postgres_store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await server.setting("idle_in_transaction_session_timeout") == "5s"
    monkeypatch.setitem(own_connections.COMMITTING, "idle_in_transaction_session_timeout", "50")
    async with ticking_on(dsn) as frozen:
        await frozen.leases.take_over("one", -LEASE_S, 1)
        ticking = asyncio.create_task(frozen.tick())
        await frozen.holds.wait()
        lease = await until_taken(postgres_store)
        assert (lease.id, lease.tick) == (0, 0)
        frozen.goes_on.set()
        await expect_lost(ticking)
