"""Making, upgrading and checking the schema."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from noetl_stream.adapters.postgres.schema import migrate as migrating
from noetl_stream.adapters.postgres.schema.migrate import known_migrations, migrate, record_migration, schema_mark
from noetl_stream.adapters.postgres.statements import statement
from noetl_stream.adapters.postgres.store import PostgresStore
from noetl_stream.errors import NotReady, Unreachable
from noetl_stream.model.ids import PARTITIONS
from noetl_stream.ports.stores.identities import AuditedAnswer
from noetl_testkit.conformance.access import attempted

DAY_MS = 24 * 3600 * 1000
Shape = dict[tuple[str, str], tuple[str, bool]]
"""Of each table and column its type, and whether a row must name it."""

NAMES = [migration.name for migration in known_migrations()]


async def refusal_by_verify(dsn: str) -> NotReady:
    store = await PostgresStore.open(dsn, name="verify")
    try:
        with pytest.raises(NotReady) as caught:
            await store.verify()
    finally:
        await store.close()
    return caught.value


async def shape(connection: Any) -> Shape:
    """The columns, functions and unique indexes of the schema."""
    columns = await connection.fetch(
        "select table_name, column_name, data_type, is_nullable = 'NO'"
        " and column_default is null and is_identity = 'NO'"
        " from information_schema.columns where table_schema = 'noetl'"
    )
    functions = await connection.fetch(
        "select p.oid::regprocedure::text, prorettype::regtype::text"
        " from pg_proc p where pronamespace = 'noetl'::regnamespace"
    )
    unique = await connection.fetch(
        "select indrelid::regclass::text, pg_get_indexdef(indexrelid, 0, true) from pg_index"
        " where indisunique and not indisprimary and indrelid::regclass::text like 'noetl.%'"
    )
    found: Shape = {(table, column): (kind, needed) for table, column, kind, needed in columns}
    found |= {("function", name): (kind, False) for name, kind in functions}
    return found | {(table.removeprefix("noetl."), index): ("unique", True) for table, index in unique}


@pytest.fixture
async def empty_database(empty_dsn: str) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(empty_dsn)
    yield connection
    await connection.close()


def test_migrations_are_numbered_without_a_gap() -> None:
    assert [migration.number for migration in known_migrations()] == list(range(1, len(NAMES) + 1))
    assert NAMES[0] == "0001_partition"


async def test_migrating_applies_everything_once(empty_dsn: str) -> None:
    assert await migrate(empty_dsn) == NAMES
    assert await migrate(empty_dsn) == []
    store = await PostgresStore.open(empty_dsn, name="test")
    await store.verify()
    assert len(await store.read_partitions()) == PARTITIONS
    await store.close()


async def test_migrating_twice_at_once_applies_everything_once(empty_dsn: str) -> None:
    first, second, third = await asyncio.gather(migrate(empty_dsn), migrate(empty_dsn), migrate(empty_dsn))
    assert sorted(first + second + third) == NAMES


async def test_a_database_without_a_schema_is_not_ready_and_names_the_command(empty_dsn: str) -> None:
    error = await refusal_by_verify(empty_dsn)
    assert "no schema yet" in error.message
    assert "noetl-stream database migrate" in (error.hint or "")


async def test_an_older_schema_is_not_ready_and_is_upgraded(dsn: str, watcher: Any) -> None:
    await watcher.execute("drop table noetl.execution; delete from noetl.migration where number = 3")
    error = await refusal_by_verify(dsn)
    assert "0003_execution is missing" in error.message
    assert "noetl-stream database migrate" in (error.hint or "")
    assert await migrate(dsn) == ["0003_execution"]


async def test_a_newer_schema_that_takes_nothing_away_is_used_and_left_alone(dsn: str, watcher: Any) -> None:
    await watcher.execute("insert into noetl.migration (number, name, checksum) values (9000, '9000_later', 'x')")
    store = await PostgresStore.open(dsn, name="older")
    await store.verify()
    await store.close()
    with pytest.raises(NotReady, match="newer schema than this version knows: 9000_later"):
        await migrate(dsn)


async def test_a_newer_schema_that_takes_something_away_is_refused(dsn: str, watcher: Any) -> None:
    await watcher.execute("insert into noetl.migration (number, name, checksum) values (9000, '9000_drop_more', 'x')")
    error = await refusal_by_verify(dsn)
    assert "newer schema" in error.message
    assert "9000_drop_more" in error.message
    assert "migrate" not in str(error)


async def test_a_migration_that_needs_a_stop_waits_until_no_server_lives(dsn: str, watcher: Any) -> None:
    await watcher.execute("drop table noetl.execution; delete from noetl.migration where number = 3")
    living = "update noetl.partition set owner = 'old', given_back = {}, lease_until = now() + interval '1 minute'"
    await watcher.execute(living.format(False))
    with pytest.raises(
        NotReady, match=r"servers of an older version run on the database at .*: old .*stop all servers"
    ):
        await migrate(dsn)
    await watcher.execute(living.format(True))
    assert await migrate(dsn) == ["0003_execution"]


async def test_no_migration_takes_away_what_older_servers_use(empty_database: Any) -> None:
    await empty_database.execute(statement("create_migration_table").text)
    before: Shape = {}
    for migration in known_migrations():
        await empty_database.execute(migration.text)
        after = await shape(empty_database)
        if migration.expands:
            lost = {name for name, kind in before.items() if after.get(name, ("",))[0] != kind[0]}
            assert not lost, migration.name
            tables = {table for table, _ in before}
            needed = {name for name in after.keys() - before.keys() if name[0] in tables and after[name][1]}
            assert not needed, f"{migration.name}: rows of older servers lack these columns"
        before = after


async def test_a_migration_changed_after_it_was_applied_is_noticed(dsn: str, watcher: Any) -> None:
    await watcher.execute("update noetl.migration set checksum = 'other' where number = 2")
    assert "a different 0002_journal" in (await refusal_by_verify(dsn)).message
    with pytest.raises(NotReady, match="a different 0002_journal"):
        await migrate(dsn)
    store = await PostgresStore.open(dsn, name="command")
    try:
        assert len(await store.verify_version()) == len(NAMES), "a command reads no file for it"
    finally:
        await store.close()


def test_a_stack_is_prepared_again_where_a_file_has_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(migrating, "MIGRATIONS", tmp_path)
    marks = [schema_mark()]
    for text in ("create", "create table"):
        (tmp_path / "0001_partition.sql").write_text(text)
        marks += [schema_mark(), schema_mark()]
    assert marks[1] == marks[2] != marks[3] == marks[4] and marks[0] not in marks[1:]


async def test_another_number_of_partitions_is_refused(dsn: str, watcher: Any) -> None:
    await watcher.execute("update noetl.meta set partitions = 16")
    assert "16 partitions" in (await refusal_by_verify(dsn)).message


async def test_a_migration_that_fails_leaves_nothing_of_itself(empty_dsn: str, empty_database: Any) -> None:
    await empty_database.execute("create schema noetl; create table noetl.playbook (); create table noetl.note ()")
    with pytest.raises(Unreachable, match='"playbook" already exists'):
        await migrate(empty_dsn)
    assert await empty_database.fetchval("select to_regclass('noetl.event')") is None
    await empty_database.execute("drop table noetl.playbook")
    assert await migrate(empty_dsn) == NAMES[1:]


async def test_a_table_missing_at_run_time_names_the_command(empty_dsn: str) -> None:
    store = await PostgresStore.open(empty_dsn, name="test")
    try:
        with pytest.raises(NotReady, match="noetl-stream database migrate"):
            await store.read_partitions()
    finally:
        await store.close()


async def test_the_audit_keeps_its_entries_when_it_is_partitioned(empty_dsn: str, empty_database: Any) -> None:
    await empty_database.execute(statement("create_migration_table").text)
    for migration in known_migrations():
        if migration.name == "0016_audit":
            break
        await empty_database.execute(migration.text)
        await empty_database.execute(record_migration(migration))
    now_ms = await empty_database.fetchval("select (extract(epoch from now()) * 1000)::bigint")
    for at_ms in (now_ms - 401 * DAY_MS, now_ms - 399 * DAY_MS, now_ms):
        await empty_database.execute(
            "with begun as (insert into noetl.audit (at_ms, principal, role, method, operation, target, correlation_id,"
            " remote, idempotency_key) values ($1, 'ann', '', '', '', '', '', '', '') returning number)"
            " insert into noetl.audit_answer (number, status, reason, made) select number, 204, 'why', '' from begun",
            at_ms,
        )
    await migrate(empty_dsn)
    store = await PostgresStore.open(empty_dsn, name="test")
    try:
        await store.audit.begin(attempted(at_ms=now_ms))
        entries = await store.audit.page(10, None, None)
    finally:
        await store.close()
    old = AuditedAnswer(204, "why")
    assert [(entry.number, entry.attempt.at_ms, entry.answer) for entry in entries] == [
        (4, now_ms, None),
        (3, now_ms, old),
        (2, now_ms - 399 * DAY_MS, old),
    ]
