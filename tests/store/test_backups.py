"""Backups of a real Postgres and a real nats-server under load, restored into others (PROTOCOL §7)."""

from __future__ import annotations

import asyncio
import gzip
import os
import shutil
import signal
import sys
from base64 import b64decode
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

import asyncpg
import pytest
from kept_places import KeptPlace
from msgspec.structs import replace
from real_stack import LARGE, TIMEOUT_S, RealStack, rows

from cli_program import environment
from nats_process import NatsServer
from noetl_stream.adapters.clock import SystemClock
from noetl_stream.adapters.files.folder import FolderFiles
from noetl_stream.adapters.nats.streams import ensure_streams
from noetl_stream.adapters.postgres.backup import PostgresBackup
from noetl_stream.adapters.postgres.schema.migrate import known_migrations, migrate
from noetl_stream.backup.create import BackupOrigin, create_backup
from noetl_stream.backup.reader import BackupReader, find_backups
from noetl_stream.backup.restore import problems_of, restore_backup
from noetl_stream.errors import Conflict, NoetlError, NotFound, NotReady, Unreachable, UsageError
from noetl_stream.hosting import maintenance
from noetl_stream.model.bundles import named_bundle, zip_of
from noetl_stream.ports.backup import TableShape
from noetl_stream.ports.stores.catalog import GrantsRevision
from noetl_stream.ports.stores.retention import Month
from noetl_stream.protocol.subjects import RESULTS, bundle_key
from noetl_stream.sealing.age import new_identity, recipient_of
from noetl_stream.sealing.file_keys import FileKeys
from noetl_stream.sealing.keys import new_key
from noetl_stream.wiring.operations import DirectOperations
from noetl_stream.wiring.stores import connect_to_nats
from object_storage import ObjectStorage

BUNDLE = zip_of({"packages/shop.py": b"VERSION = 1"})
GRANTS = 'grants: [{paths: ["*"], pools: ["*"], kinds: ["*"]}]\n'
KEYS = FileKeys(new_key())
NO_BLOBS: Any = None
"""Nothing is asked of them before the database is refused."""

TABLES = "select relname::text from pg_class where relnamespace = 'noetl'::regnamespace and relkind in ('r', 'p')"


class Source(NamedTuple):
    """A stack on which an execution with a large result has ended, and its backup."""

    stack: RealStack
    backup: Path


@pytest.fixture(scope="module")
def source(postgres_server: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Source]:
    folder = tmp_path_factory.mktemp("source")
    nats = NatsServer(folder)
    nats.start()
    made = RealStack(nats, postgres_server, postgres_server.dsn("source"))
    yield Source(made, asyncio.run(backed_up(made, folder / "backups")))
    nats.end()


async def backed_up(stack: RealStack, place: Path) -> Path:
    await stack.database("source", "migrated")
    await stack.admin(ensure_streams)
    async with stack.running() as connected:
        await stack.ended(connected, await stack.submit(connected, LARGE, "tests/large"))
        operations = DirectOperations(connected, stack.endpoint)
        await operations.playbooks.put_bundle("team/shop\\a", BUNDLE, "ann")
        await connected.store.grants.add(GrantsRevision(1, GRANTS, 1, "token:boss"))
    await maintenance.create_backup(stack.endpoint, FolderFiles(place), "first", KEYS)
    return place / "first"


@pytest.fixture
def backup(source: Source, tmp_path: Path) -> BackupReader:
    """A copy of the backup of ``source``."""
    shutil.copytree(source.backup, tmp_path / "backups" / "first")
    return BackupReader(FolderFiles(tmp_path / "backups" / "first"), KEYS)


@pytest.fixture
def copied(source: Source, kept: KeptPlace) -> KeptPlace:
    """A folder and a bucket with a copy of the backup of ``source``: it is the same in both."""
    for path in source.backup.rglob("*"):
        if path.is_file():
            kept.write(f"first/{path.relative_to(source.backup)}", path.read_bytes())
    return kept


@pytest.fixture
async def other(source: Source, nats: NatsServer, empty_dsn: str) -> RealStack:
    """Empty stores with the keys of ``source``."""
    found = RealStack(nats, source.stack.postgres, empty_dsn)
    found.endpoint = replace(source.stack.endpoint, nats_url=nats.url, postgres_dsn=empty_dsn)
    await found.admin(ensure_streams)
    return found


async def contents(dsn: str | None) -> dict[str, list[str]]:
    """The rows of every table but those about servers, migrations and the place in the streams."""
    names = [name for (name,) in await rows(dsn, TABLES)]
    left_out = {"server", "migration", "meta", "partition"}
    texts = {name: await rows(dsn, f"select t::text from noetl.{name} t") for name in names if name not in left_out}
    return {name: sorted(text for (text,) in found) for name, found in texts.items() if found}


@pytest.mark.verify
async def test_a_backup_under_load_gives_every_accepted_execution_its_end(
    source: Source, other: RealStack, tmp_path: Path
) -> None:
    stack = source.stack
    async with stack.running() as connected:
        ended = await stack.submit(connected, LARGE, "tests/large")
        await stack.ended(connected, ended)
        loading = asyncio.create_task(load(stack, connected))
        accepted = [await stack.submit(connected, LARGE, "tests/large") for _ in range(5)]
        made = await maintenance.create_backup(stack.endpoint, FolderFiles(tmp_path / "backups"), None, KEYS)
        loading.cancel()
        await asyncio.gather(loading, return_exceptions=True)
    assert problems_of(made) == []
    assert made.manifest.missing == []
    restored = await maintenance.restore_backup(other.endpoint, made)
    assert restored.generation == made.manifest.database.generation + 1
    async with other.running() as connected:
        for execution_id in (ended, *accepted):
            row = await other.ended(connected, execution_id)
            assert b"120000" in bytes(row.result or b"")
        await other.agree()
        await other.ended(connected, await other.submit(connected, LARGE, "tests/large"))
    assert await other.is_whole_in_events()


async def load(stack: RealStack, connected: Any) -> None:
    while True:
        await stack.submit(connected)


async def test_a_restore_gives_back_every_row_and_object(source: Source, other: RealStack, kept: KeptPlace) -> None:
    made = await maintenance.create_backup(source.stack.endpoint, kept.files, "now", KEYS)
    assert (kept.folder / "now" / "SHA256SUMS").exists()
    stored = dict(made.objects())
    assert stored
    assert not any(b"large large" in data for data in stored.values()), "objects are sealed in a backup too"
    await maintenance.restore_backup(other.endpoint, made)
    before, after = source.stack.endpoint.postgres_dsn, other.endpoint.postgres_dsn
    assert await contents(after) == await contents(before)
    for query in (
        "select last_value, is_called from noetl.audit_number",
        "select * from noetl.event_month order by name",
    ):
        assert await rows(after, query) == await rows(before, query)
    ports = await connect_to_nats(other.endpoint, name="test")
    try:
        assert {key: await ports.blobs.get(key) for key in stored} == stored
    finally:
        await ports.close()


async def test_packages_come_back_with_a_restore_and_may_have_been_deployed_again_before(
    other: RealStack, backup: BackupReader
) -> None:
    name = named_bundle("team/shop\\a", BUNDLE)
    assert bundle_key(str(name)) in dict(backup.objects())
    await maintenance.restore_backup(other.endpoint, backup)
    async with other.running() as connected:
        playbooks = DirectOperations(connected, other.endpoint).playbooks
        assert b64decode((await playbooks.get_bundle(*name)).content) == BUNDLE
        await connected.blobs.delete(bundle_key(str(name)))
        await playbooks.put_bundle(name.project, BUNDLE, "ann")
    assert await maintenance.restore_objects(other.endpoint, backup) == backup.manifest.objects


def test_one_flipped_byte_of_any_file_is_found(copied: KeptPlace) -> None:
    backup = copied.below("first")
    assert problems_of(BackupReader(backup.files, KEYS)) == []
    for name in backup.files.sizes():
        whole = backup.read(name)
        damaged = bytearray(whole)
        damaged[len(damaged) // 2] ^= 1
        backup.write(name, damaged)
        try:
            assert problems_of(BackupReader(backup.files, KEYS)) != [], name
        except UsageError as error:
            assert "manifest" in error.message
        backup.write(name, whole)


def test_a_file_that_is_missing_or_new_is_found(copied: KeptPlace) -> None:
    backup = copied.below("first")
    backup.write("tables/other.copy.gz", backup.read("tables/event.copy.gz"))
    backup.files.remove("tables/event.copy.gz")
    found = problems_of(BackupReader(backup.files, KEYS))
    assert found == ["tables/event.copy.gz: missing", "tables/other.copy.gz: not in SHA256SUMS"]


async def test_objects_that_are_lost_are_named_in_the_manifest_and_come_back_from_a_backup(
    other: RealStack, backup: BackupReader, tmp_path: Path
) -> None:
    await maintenance.restore_backup(other.endpoint, backup)
    await other.admin(lambda connection: connection.api(f"STREAM.PURGE.{RESULTS}"))
    assert await maintenance.restore_objects(other.endpoint, backup) == backup.manifest.objects
    assert (
        await maintenance.create_backup(other.endpoint, FolderFiles(tmp_path), "whole", KEYS)
    ).manifest.missing == []
    await other.admin(lambda connection: connection.api(f"STREAM.PURGE.{RESULTS}"))
    made = await maintenance.create_backup(other.endpoint, FolderFiles(tmp_path), "lossy", KEYS)
    assert made.manifest.missing == [key for key, _ in backup.objects()]
    assert made.manifest.objects == 0
    assert problems_of(made) == []


async def test_a_killed_backup_is_incomplete_and_another_completes_it(
    source: Source, copied: KeptPlace, tmp_path: Path
) -> None:
    endpoint = source.stack.endpoint
    own = {"NOETL_NATS_URL": endpoint.nats_url, "NOETL_POSTGRES_DSN": str(endpoint.postgres_dsn)}
    holder = await asyncpg.connect(endpoint.postgres_dsn)
    async with holder.transaction():
        await holder.execute("lock table noetl.timer in access exclusive mode")  # it waits in the middle, then
        killed = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "noetl_stream", "backup", "create", copied.text, "--name", "killed",
            env=environment(**own, HOME=str(tmp_path)),
        )  # fmt: skip
        async with asyncio.timeout(TIMEOUT_S):
            while not (copied.folder / "killed/tables/execution.copy.gz").exists():  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        os.kill(killed.pid, signal.SIGKILL)
        await killed.wait()
    await holder.close()
    finished, unfinished = find_backups(copied.files, KEYS)
    assert ([one.files.name for one in finished], unfinished) == (["first"], ["killed"])
    with pytest.raises(NotFound, match="is not a finished backup"):
        BackupReader(copied.below("killed").files, KEYS)
    assert problems_of(await maintenance.create_backup(endpoint, copied.files, "killed", KEYS)) == []
    assert len(find_backups(copied.files, KEYS)[0]) == 2


async def test_a_backup_replaces_only_its_own_folder(source: Source, copied: KeptPlace) -> None:
    copied.write("other/precious", b"")
    for name in ("first", "other"):
        with pytest.raises(UsageError, match=f"{name} exists already"):
            await maintenance.create_backup(source.stack.endpoint, copied.files, name, KEYS)
    assert (copied.folder / "other" / "precious").exists()
    assert problems_of(BackupReader(copied.below("first").files, KEYS)) == []


async def test_a_backup_that_fails_leaves_nothing(source: Source, kept: KeptPlace) -> None:
    class Away:
        async def get(self, key: str) -> bytes:
            raise Unreachable("away")

    database, blobs = PostgresBackup(str(source.stack.endpoint.postgres_dsn)), Away()
    with pytest.raises(Unreachable):
        await create_backup(
            database, cast(Any, blobs), SystemClock(), kept.files, keys=KEYS, origin=BackupOrigin("", ""), name="failed"
        )
    assert not (kept.folder / "failed").exists()


async def test_a_backup_whose_last_upload_is_refused_is_incomplete(
    source: Source, storage: ObjectStorage, bucket: KeptPlace
) -> None:
    storage.refused = lambda method, path: method == "PUT" and path.partition("?")[0].endswith("SHA256SUMS")
    with pytest.raises(Unreachable, match=r"s3://.*/cut/SHA256SUMS: object storage answers 503"):
        await maintenance.create_backup(source.stack.endpoint, bucket.files, "cut", KEYS)
    storage.refused = storage.never
    assert find_backups(bucket.files, KEYS) == ([], [])
    assert problems_of(await maintenance.create_backup(source.stack.endpoint, bucket.files, "cut", KEYS)) == []


async def test_an_interrupted_restore_can_be_repeated(other: RealStack, backup: BackupReader) -> None:
    ports = await connect_to_nats(other.endpoint, name="test")
    try:
        breaking: Any = BreakingBlobs(ports.blobs)
        with pytest.raises(NoetlError, match="interrupted"):
            await restore_backup(backup, PostgresBackup(str(other.endpoint.postgres_dsn)), breaking)
    finally:
        await ports.close()
    assert (await maintenance.restore_backup(other.endpoint, backup)).executions == 1


class BreakingBlobs:
    """Stores an object, and then nothing more."""

    def __init__(self, blobs: Any) -> None:
        self._blobs = blobs

    async def put(self, key: str, data: bytes | memoryview) -> None:
        await self._blobs.put(key, data)
        raise NoetlError("interrupted")


OLDER = "0035_partition_behind"
CHANGED_SINCE = {"audit", "audit_answer", "audit_chain", "bundle", "execution_key", "feed_reader", "grant_revision"}
WIDER_SINCE = "execution"
ADDED_SINCE = ("stored_bytes", "key", "inputs", "failed_step", "workers", "due")
"""The columns that the table has more, its last."""


def narrow(backup: BackupReader, tables: Sequence[TableShape]) -> list[TableShape]:
    """These tables as they were, whose rows the backup then has."""
    lines = backup.lines

    async def narrow_lines(table: TableShape) -> AsyncIterator[bytes]:
        rows = b"".join([piece async for piece in lines(table)])
        if table.name == WIDER_SINCE:
            rows = b"".join(row.rsplit(b"\t", len(ADDED_SINCE))[0] + b"\n" for row in rows.splitlines())
        yield rows

    backup.lines = narrow_lines  # type: ignore[method-assign]
    kept = [table for table in tables if table.name not in CHANGED_SINCE]
    return [replace(one, columns=one.columns[: -len(ADDED_SINCE)]) if one.name == WIDER_SINCE else one for one in kept]


async def test_a_backup_of_an_older_schema_is_restored_and_migrated(other: RealStack, backup: BackupReader) -> None:
    before = Month("event_before", "", backup.manifest.database.months[-1].to_id)
    shape = replace(
        backup.manifest.database,
        migrations=[one for one in backup.manifest.database.migrations if one[0] <= OLDER],
        tables=narrow(backup, backup.manifest.database.tables),
        months=[before],
    )
    counts = {name: count for name, count in backup.manifest.rows.items() if name not in CHANGED_SINCE}
    backup.manifest = replace(backup.manifest, database=shape, rows=counts)
    ports = await connect_to_nats(other.endpoint, name="test")
    try:
        await restore_backup(unchecked(backup), PostgresBackup(str(other.endpoint.postgres_dsn)), ports.blobs)
    finally:
        await ports.close()
    applied = await rows(other.endpoint.postgres_dsn, "select name from noetl.migration order by number")
    assert [name for (name,) in applied] == [one.name for one in known_migrations()]
    months = await rows(other.endpoint.postgres_dsn, "select name, from_id, to_id from noetl.event_month")
    assert months == [("event_before", None, before.to_id)]
    assert await rows(other.endpoint.postgres_dsn, "select count(*) > 0 from noetl.event_before") == [(True,)]


def unchecked(backup: BackupReader) -> BackupReader:
    backup.damage = list  # type: ignore[method-assign]
    return backup


async def test_a_backup_of_a_newer_schema_is_refused(other: RealStack, backup: BackupReader) -> None:
    shape = replace(backup.manifest.database, migrations=[*backup.manifest.database.migrations, ("9999_later", "")])
    backup.manifest = replace(backup.manifest, database=shape)
    with pytest.raises(NotReady, match="9999_later"):
        await restore_backup(unchecked(backup), PostgresBackup(str(other.endpoint.postgres_dsn)), NO_BLOBS)


async def test_a_database_with_rows_is_refused(source: Source, backup: BackupReader) -> None:
    stack = source.stack
    before = await contents(stack.endpoint.postgres_dsn)
    with pytest.raises(Conflict, match="not empty: the table"):
        await restore_backup(backup, PostgresBackup(str(stack.endpoint.postgres_dsn)), NO_BLOBS)
    assert await contents(stack.endpoint.postgres_dsn) == before


async def test_a_database_that_servers_use_is_refused(other: RealStack, backup: BackupReader) -> None:
    await migrate(str(other.endpoint.postgres_dsn))
    async with other.running() as connected:
        async with asyncio.timeout(TIMEOUT_S):
            while not await connected.store.owner_count():  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        with pytest.raises(Conflict, match="servers use the database"):
            await restore_backup(backup, PostgresBackup(str(other.endpoint.postgres_dsn)), NO_BLOBS)


async def test_streams_that_have_had_messages_are_refused(
    source: Source, other: RealStack, backup: BackupReader
) -> None:
    used = replace(other.endpoint, nats_url=source.stack.nats.url)
    with pytest.raises(Conflict, match=r"stream EVENTS at .* is not empty"):
        await maintenance.restore_backup(used, backup)


async def test_a_damaged_backup_is_not_restored(other: RealStack, copied: KeptPlace) -> None:
    copied.files.remove("first/tables/event.copy.gz")
    with pytest.raises(UsageError, match=r"is damaged: tables.event.copy.gz: missing"):
        await maintenance.restore_backup(other.endpoint, BackupReader(copied.below("first").files, KEYS))
    assert await rows(other.endpoint.postgres_dsn, "select to_regclass('noetl.event')::text") == [(None,)]


async def test_an_encrypted_backup_is_restored_by_who_has_the_private_key(
    source: Source, other: RealStack, kept: KeptPlace
) -> None:
    identity = new_identity()
    to_one = replace(KEYS, recipients=(recipient_of(identity),))
    await maintenance.create_backup(source.stack.endpoint, kept.files, "closed", to_one, "ann@host")
    stored = b"".join(path.read_bytes() for path in (kept.folder / "closed").rglob("*.age"))
    assert b"ustar" not in stored and gzip.compress(b"")[:3] not in stored
    for path in kept.folder.rglob("*"):
        assert path.is_dir() or b"large" not in path.read_bytes()
    closed = BackupReader(kept.below("closed").files, KEYS)
    assert problems_of(closed) == []
    with pytest.raises(UsageError, match=f"is encrypted to {to_one.recipients[0]}"):
        await maintenance.restore_backup(other.endpoint, closed)
    opened = BackupReader(kept.below("closed").files, replace(KEYS, identities=(identity,)))
    assert problems_of(opened) == []
    restored = await maintenance.restore_backup(other.endpoint, opened)
    assert restored.executions == opened.manifest.rows["execution"] > 0
    assert await contents(other.endpoint.postgres_dsn) == await contents(source.stack.endpoint.postgres_dsn)
    assert (opened.manifest.made_by, opened.manifest.name) == ("ann@host", "closed")
    assert opened.manifest.source.startswith("postgresql://")


async def test_a_database_with_this_schema_that_is_empty_takes_a_backup(other: RealStack, backup: BackupReader) -> None:
    await migrate(str(other.endpoint.postgres_dsn))
    assert (await maintenance.restore_backup(other.endpoint, backup)).executions == 1
