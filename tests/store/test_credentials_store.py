"""The encrypted credential store, in memory and on Postgres."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

import asyncpg
import pytest

from noetl_stream.adapters.clock import ManualClock
from noetl_stream.adapters.memory.stores import credentials as memory_access
from noetl_stream.adapters.memory.stores.credentials import MemoryCredentials
from noetl_stream.adapters.postgres import tables as postgres_access
from noetl_stream.adapters.postgres.store import PostgresStore
from noetl_stream.adapters.postgres.tables import PostgresCredentials
from noetl_stream.ports.stores.credentials import Credentials
from noetl_testkit.conformance.credentials import (
    CredentialsConformance,
    ForgetExecution,
    given,
    new_credential,
    stored,
    value_of,
)

USE = "select noetl.record_credential_use($1, 'pg', $2)"
GIVE = "select noetl.record_given_value($1, $2, 1, 'key-1', 'sealed', 100, 1000)"
DELETE = "select noetl.delete_execution($1, '{}')"
ENDED = """
insert into noetl.execution (execution_id, partition, status, path, digest, position, started_ms, updated_ms,
    finished_ms, ctx, discarded)
values ($1, 0, 'completed', 'p', 'd', 1, 0, 0, 0, '{}', 0)
"""


async def check_the_bound(credentials: Credentials) -> None:
    old = await stored(credentials, "old")
    for version in (1, 2, 3):
        assert await credentials.record_use("one", await stored(credentials, "pg", version))
    assert await credentials.record_use("one", old)
    found = (await credentials.used_by(["one"]))["one"]
    assert [(value.name, value.version) for value in found] == [("pg", 2), ("old", 1), ("pg", 3)]


class TestMemoryCredentials(CredentialsConformance):
    @pytest.fixture
    def credentials(self) -> MemoryCredentials:
        return MemoryCredentials(ManualClock())

    @pytest.fixture
    def forget_execution(self, credentials: MemoryCredentials) -> ForgetExecution:
        async def forget(execution_id: str) -> None:
            credentials.forget_execution(execution_id)

        return forget

    async def test_the_oldest_former_values_are_left_out(
        self, credentials: Credentials, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(memory_access, "MAX_VALUES_USED", 3)
        await check_the_bound(credentials)


class TestPostgresCredentials(CredentialsConformance):
    @pytest.fixture
    def credentials(self, postgres_store: PostgresStore) -> PostgresCredentials:
        return postgres_store.credentials

    @pytest.fixture
    def forget_execution(self, watcher: Any) -> ForgetExecution:
        async def forget(execution_id: str) -> None:
            await watcher.execute(ENDED, execution_id)
            assert await watcher.fetchval(DELETE, execution_id) == execution_id

        return forget

    async def test_the_oldest_former_values_are_left_out(
        self, credentials: Credentials, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(postgres_access, "MAX_VALUES_USED", 3)
        await check_the_bound(credentials)

    async def test_a_value_that_is_replaced_while_it_is_handed_out_is_kept(
        self, credentials: Credentials, dsn: str, watcher: Any
    ) -> None:
        read = await stored(credentials, "pg")
        connection = await asyncpg.connect(dsn)
        async with connection.transaction():
            assert await connection.fetchval(USE, "one", read.sealed)
            replacing = await under_way(watcher, credentials.put(new_credential("pg", 2)))
        await connection.close()
        assert await replacing
        assert [former.value for former in await credentials.read_former(0, 10)] == [value_of(read)]

    async def test_a_value_is_not_handed_out_while_it_is_replaced(
        self, credentials: Credentials, dsn: str, watcher: Any
    ) -> None:
        read = await stored(credentials, "pg")
        connection = await asyncpg.connect(dsn)
        async with connection.transaction():
            await connection.execute("delete from noetl.credential where name = 'pg'")
            using = await under_way(watcher, credentials.record_use("one", read))
        await connection.close()
        assert not await using
        assert await credentials.used_by(["one"]) == {}

    async def test_of_two_executions_deleted_at_once_the_last_takes_the_former_values_along(
        self, credentials: Credentials, dsn: str, watcher: Any, forget_execution: ForgetExecution
    ) -> None:
        read = await stored(credentials, "pg")
        for execution_id in ("one", "two"):
            assert await credentials.record_use(execution_id, read)
        assert await credentials.delete("pg")
        await watcher.execute(ENDED, "one")
        connection, other = await asyncpg.connect(dsn), await asyncpg.connect(dsn)
        await other.execute(ENDED, "two")
        async with connection.transaction():
            await connection.fetch(DELETE, "one")
            deleting = await under_way(watcher, other.fetch(DELETE, "two"))
        await deleting
        await connection.close()
        await other.close()
        assert await credentials.read_former(0, 10) == []

    async def test_a_value_replaced_while_its_last_execution_is_deleted_is_not_kept(
        self, credentials: Credentials, dsn: str, watcher: Any
    ) -> None:
        assert await credentials.record_use("one", await stored(credentials, "pg"))
        await watcher.execute(ENDED, "one")
        connection = await asyncpg.connect(dsn)
        async with connection.transaction():
            await connection.fetch(DELETE, "one")
            replacing = await under_way(watcher, credentials.put(new_credential("pg", 2)))
        await connection.close()
        assert await replacing
        assert await credentials.read_former(0, 10) == []

    async def test_one_value_that_workers_read_at_once_is_kept_once(
        self, credentials: Credentials, dsn: str, watcher: Any
    ) -> None:
        connection = await asyncpg.connect(dsn)
        async with connection.transaction():
            await connection.execute(GIVE, "one", given("worker-a").name)
            giving = await under_way(watcher, credentials.record_given("one", given("worker-a")))
        await connection.close()
        await giving
        assert len(await credentials.read_former(0, 10)) == 1

    async def test_no_value_is_kept_under_the_name_of_a_credential(self, watcher: Any) -> None:
        with pytest.raises(asyncpg.RaiseError, match="has the name of a credential: pg"):
            await watcher.execute(GIVE, "one", "pg")


async def under_way(watcher: Any, statement: Awaitable[Any]) -> asyncio.Future[Any]:
    """The statement, waiting for a lock, or done."""
    task = asyncio.ensure_future(statement)
    waiting = "select exists (select from pg_locks where not granted)"
    while not task.done() and not await watcher.fetchval(waiting):
        pass
    return task
