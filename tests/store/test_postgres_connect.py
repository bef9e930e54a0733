"""Connections that do not come about: one line, the reason, what to do, and never the password."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest

from noetl_stream.adapters.postgres.connections.database import require_version, shown_address
from noetl_stream.adapters.postgres.schema.migrate import migrate
from noetl_stream.adapters.postgres.store import PostgresStore
from noetl_stream.errors import NoetlError, NotReady, Unreachable, UsageError
from noetl_testkit.conformance.store_rows import taken

SECRET = "hunter2"


async def refusals(dsn: str) -> list[NoetlError]:
    """What opening and migrating say; each must be one line without the password."""
    errors = []
    for attempt in (PostgresStore.open(dsn, name="test"), migrate(dsn)):
        with pytest.raises(NoetlError) as caught:
            await attempt
        assert SECRET not in str(caught.value)
        assert "\n" not in str(caught.value)
        errors.append(caught.value)
    return errors


def unused_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


async def test_an_address_where_nothing_listens_is_unreachable() -> None:
    port = unused_port()
    for host in ("127.0.0.1", "localhost"):
        for error in await refusals(f"postgresql://me:{SECRET}@{host}:{port}/work"):
            assert isinstance(error, Unreachable)
            assert error.message == f"cannot reach Postgres at postgresql://me@{host}:{port}/work: connection refused"
            assert "NOETL_POSTGRES_DSN" in (error.hint or "")


async def test_a_missing_socket_is_unreachable(tmp_path: Any) -> None:
    for error in await refusals(f"postgresql://me:{SECRET}@/work?host={tmp_path}"):
        assert isinstance(error, Unreachable)
        assert "no such socket" in error.message


async def test_a_missing_database_is_unreachable(postgres_server: Any) -> None:
    for error in await refusals(postgres_server.dsn("nowhere")):
        assert isinstance(error, Unreachable)
        assert "the database does not exist" in error.message


@pytest.fixture
async def login_with_password(postgres_server: Any) -> AsyncIterator[None]:
    rules = postgres_server.data_folder / "pg_hba.conf"
    before = rules.read_text()
    rules.write_text("local all guarded scram-sha-256\n" + before)
    await postgres_server.execute("create role guarded login password 'right'", "select pg_reload_conf()")
    yield
    rules.write_text(before)
    await postgres_server.execute("drop role guarded", "select pg_reload_conf()")


@pytest.mark.usefixtures("login_with_password")
async def test_a_wrong_password_is_reported_without_showing_it(postgres_server: Any) -> None:
    for error in await refusals(postgres_server.dsn("postgres", f"guarded:{SECRET}")):
        assert isinstance(error, Unreachable)
        assert "wrong password" in error.message


@pytest.mark.usefixtures("login_with_password")
async def test_a_user_without_rights_gets_a_clear_error(postgres_server: Any) -> None:
    with pytest.raises(NotReady, match="lacks a privilege"):
        await migrate(postgres_server.dsn("postgres", "guarded:right"))


@pytest.mark.parametrize("dsn", ["", "mysql://me@there/work", f"me:{SECRET}@there", "postgresql://there:port/work"])
async def test_an_invalid_postgres_url_is_a_usage_error(dsn: str) -> None:
    for error in await refusals(dsn):
        assert isinstance(error, UsageError)
        assert "postgresql://user:password@host:5432/database" in str(error)


@pytest.mark.parametrize(
    ("dsn", "shown"),
    [
        (
            f"postgres://me:{SECRET}@there:5433/work?sslmode=require&password={SECRET}",
            "postgresql://me@there:5433/work",
        ),
        (f"postgresql://me:{SECRET}@[::1]:5433/work", "postgresql://me@[::1]:5433/work"),
        ("postgresql:///work", "postgresql://localhost/work"),
        ("postgresql://me@/work?host=/run/pg&port=5433", "postgresql://me@/run/pg:5433/work"),
    ],
)
def test_an_address_is_shown_without_secrets(dsn: str, shown: str) -> None:
    assert shown_address(dsn) == shown


def test_postgres_before_14_is_not_ready() -> None:
    require_version(14, "postgresql://there/work")
    with pytest.raises(NotReady, match="is version 13"):
        require_version(13, "postgresql://there/work")


async def test_a_closed_store_is_unreachable(dsn: str) -> None:
    store = await PostgresStore.open(dsn, name="test")
    await taken(store)
    await store.close()
    with pytest.raises(Unreachable):
        await store.read_partitions()
