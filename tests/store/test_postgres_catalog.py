from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from noetl_stream.adapters.postgres.connections.database import Database
from noetl_stream.adapters.postgres.store import PostgresStore
from noetl_stream.adapters.postgres.tables import PostgresCatalog
from noetl_stream.errors import NotReady, PayloadRefused
from noetl_testkit.conformance.catalog import CatalogConformance, registered


@pytest.fixture
async def database(dsn: str) -> AsyncIterator[Database]:
    found = await Database.open(dsn, "test")
    yield found
    await found.close()


@pytest.fixture
def store(database: Database) -> PostgresStore:
    return PostgresStore(database)


@pytest.fixture
def catalog(database: Database) -> PostgresCatalog:
    return PostgresCatalog(database)


class TestPostgresCatalog(CatalogConformance):
    async def test_a_text_postgres_cannot_hold_is_refused(self, catalog: PostgresCatalog) -> None:
        with pytest.raises(PayloadRefused):
            await registered(catalog, "a: \0")
        assert await catalog.latest("", {}, 10, None) == []

    async def test_two_processes_that_register_at_once_get_a_revision_each(
        self, catalog: PostgresCatalog, watcher: Any
    ) -> None:
        """The other has taken revision 1 but not committed: we wait for it, look again, and take 2."""
        other = watcher.transaction()
        await other.start()
        await watcher.execute(
            "insert into noetl.playbook (digest, path, source) values ('other', 'demo/pages', 'b');"
            "insert into noetl.catalog (path, revision, digest, name, labels, tags, registered_ms, registered_by)"
            " values ('demo/pages', 1, 'other', 'pages', '{}', '[]', 1, 'bob')"
        )
        ours = asyncio.ensure_future(registered(catalog, "a"))
        await until_one_waits(watcher)
        await other.commit()
        assert (await ours).revision == 2

    async def test_a_schema_without_a_catalog_names_the_command(self, catalog: PostgresCatalog, watcher: Any) -> None:
        await watcher.execute("drop table noetl.catalog")
        with pytest.raises(NotReady, match="noetl-stream database migrate"):
            await catalog.versions("demo/pages")


async def until_one_waits(watcher: asyncpg.Connection[asyncpg.Record]) -> None:
    """Returns when another connection waits for what this one has locked."""
    waiting = "select exists (select from pg_locks where not granted)"
    while not await watcher.fetchval(waiting):
        pass
