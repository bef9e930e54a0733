"""Executions that are archived before they are deleted, on a real Postgres and a real nats-server."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from kept_places import KeptPlace
from msgspec.structs import replace
from real_stack import LARGE, RealStack

from cli_program import one_clear_line
from effort import first_in_gate
from noetl_stream.adapters import archive
from noetl_stream.adapters.archive import ParquetArchive, month_of
from noetl_stream.adapters.clock import SystemClock
from noetl_stream.errors import NoetlError, NotFound, Unreachable, UsageError
from noetl_stream.operations.executions.archiving import ExecutionArchiver
from noetl_stream.ports.operations.executions import ExecutionFilter, Executions
from noetl_stream.sealing.age import new_identity, recipient_of
from noetl_stream.sealing.file_keys import FileKeys
from noetl_stream.sealing.keys import new_key
from noetl_stream.settings.places import Place
from noetl_stream.settings.retention_periods import RetentionRule, RetentionSettings, read_retention
from noetl_stream.wiring.operations import DirectOperations
from noetl_stream.wiring.role_assembly import make_retention
from noetl_stream.wiring.stores import Connected
from object_storage import ObjectStorage
from warm_program import noetl

KEYS = FileKeys(new_key())
IDENTITY = new_identity()
CLOSED = replace(KEYS, recipients=(recipient_of(IDENTITY),))
DAY_MS = 86_400_000
UNIQUE = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: unique, path: tests/unique}
workflow:
  - step: unique
    tool: {kind: python, code: "import random; result = random.Random(1).randbytes(400_000).hex()"}
"""
"""Its result takes 400 kB, and is in one column of three."""


class Later(SystemClock):
    """Three days from now."""

    def now_ms(self) -> int:
        return super().now_ms() + 3 * DAY_MS


def rules(text: str) -> tuple[RetentionRule, ...]:
    return read_retention("NOETL_RETENTION", {"NOETL_RETENTION": text})


async def delete_old(
    stack: RealStack, connected: Connected, text: str, archive: Place, keys: FileKeys | None = None
) -> int:
    endpoint = replace(stack.endpoint, retention=RetentionSettings(rules(text), archive, archive_keys=keys or KEYS))
    return await make_retention(replace(connected, clock=Later()), endpoint).delete_old()


def parquet_files(folder: Path) -> list[Path]:
    endings = (".parquet", ".parquet.sums", ".parquet.sums.sig")
    assert not [path for path in folder.rglob("*") if path.is_file() and not path.name.endswith(endings)]
    return list(folder.rglob("*.parquet"))


async def shown(executions: Executions, execution_id: str) -> list[Any]:
    """What `get`, `result` and `events` give, as JSON values."""
    found = [
        await executions.get(execution_id),
        await executions.result(execution_id),
        *await executions.events(execution_id, 0, 1000),
    ]
    return [msgspec.to_builtins(one) for one in found]


@pytest.mark.parametrize("keys", first_in_gate([CLOSED, KEYS]), ids=["encrypted", "signed"])
async def test_an_archive_reads_back_as_get_and_events_gave_it(
    stack: RealStack, kept: KeptPlace, keys: FileKeys
) -> None:
    async with stack.running() as connected:
        executions = DirectOperations(connected, stack.endpoint).executions
        ids = [await stack.submit(connected, LARGE, "tests/large"), await stack.submit(connected)]
        for one in ids:
            await stack.ended(connected, one)
        before = {one: await shown(executions, one) for one in ids}
        listed = await executions.page(ExecutionFilter(), 10, None)
        assert await delete_old(stack, connected, "2d", kept.place, keys) == 2
        for one in ids:
            with pytest.raises(NotFound):
                await executions.get(one)
    opened = ParquetArchive(kept.files, replace(keys, identities=(IDENTITY,)))
    for one in ids:
        read = [opened.get(one), opened.result(one), *opened.events(one, 0, None)]
        assert [msgspec.to_builtins(document) for document in read] == before[one]
    assert opened.page(ExecutionFilter(), 10, None) == listed
    assert [one.execution_id for one in opened.page(ExecutionFilter(path="tests/large"), 10, None).items] == ids[:1]
    assert opened.page(ExecutionFilter(status=["failed"]), 10, None).items == []
    first = opened.page(ExecutionFilter(), 1, None)
    assert [one.execution_id for one in opened.page(ExecutionFilter(), 1, first.next).items] == ids[:1]
    assert len(opened.events(ids[0], 2, 3)) == 3
    assert read_by_commands(kept.text, ids[0]) == before[ids[0]]
    for path in kept.folder.rglob("*.sums"):
        assert re.search(r"\n# made by .+@.+ with release .+, from postgresql://", path.read_text())
    if keys is KEYS:
        assert len(parquet_files(kept.folder)) == 2
        return
    with pytest.raises(UsageError, match=r"parquet.age is encrypted to others: no identity here opens it"):
        ParquetArchive(kept.files, KEYS).get(ids[0])
    for path in kept.folder.rglob("*.age"):
        assert b"PAR1" not in path.read_bytes()


def read_by_commands(place: str, execution_id: str) -> list[Any]:
    """What `get`, `result` and `events` print of an archive, with no server anywhere."""
    nowhere = {"NOETL_NATS_URL": "nats://127.0.0.1:1", "NOETL_POSTGRES_DSN": "postgresql://127.0.0.1:1/none"}
    nowhere |= {"NOETL_ARCHIVE_TRUSTED_KEYS": KEYS.public_key, "NOETL_ARCHIVE_IDENTITY": IDENTITY}
    found: list[Any] = []
    for verb in ("get", "result", "events"):
        printed = noetl("execution", verb, execution_id, "--archive", place, "-o", "jsonl", **nowhere)
        assert printed.returncode == 0, printed.stderr
        found += map(json.loads, printed.stdout.splitlines())
    listed = noetl("execution", "list", "--archive", place, "-o", "name", **nowhere)
    assert execution_id in listed.stdout.split()
    unknown = noetl("execution", "get", "unknown", "--archive", place, **nowhere)
    assert (unknown.returncode, unknown.stderr.count("\n")) == (2, 1)
    return found


def test_a_place_without_an_archive_is_an_error_and_not_an_empty_list(tmp_path: Path) -> None:
    """As a wrong prefix is, or a folder that was not mounted."""
    (tmp_path / "executions").mkdir()
    listed = noetl("execution", "list", "--archive", tmp_path, "-o", "json")
    assert (listed.returncode, listed.stdout) == (2, "")
    assert f"{tmp_path} has no archive" in one_clear_line(listed)


async def test_nothing_is_deleted_that_the_archive_does_not_hold(stack: RealStack, tmp_path: Path) -> None:
    async with stack.running() as connected:
        ended = await stack.submit(connected)
        await stack.ended(connected, ended)
        (tmp_path / "file").write_text("")
        with pytest.raises(UsageError, match=r"archive .*/file"):
            await delete_old(stack, connected, "2d", tmp_path / "file")
        assert await connected.store.execution(ended) is not None
        assert await connected.store.journal(ended)


async def test_an_archived_execution_is_not_archived_again(stack: RealStack, kept: KeptPlace) -> None:
    async with stack.running() as connected:
        ended = await stack.submit(connected)
        await stack.ended(connected, ended)
        executions = DirectOperations(connected, stack.endpoint).executions
        archiver = ExecutionArchiver(executions, ParquetArchive(kept.files, KEYS), month_of)
        for _ in range(2):
            assert await archiver.keep([ended, "unknown"]) == {ended}
    assert len(parquet_files(kept.folder)) == 2


@pytest.mark.verify
async def test_rules_by_number_keep_the_newest(stack: RealStack) -> None:
    async with stack.running() as connected:
        ids = [await stack.submit(connected) for _ in range(3)]
        for one in ids:
            await stack.ended(connected, one)
        endpoint = replace(stack.endpoint, retention=RetentionSettings(rules("tests=newest 2, 1d")))
        retention = make_retention(replace(connected, clock=Later()), endpoint)
        planned = await retention.plan()
        assert [(str(one.rule), one.executions) for one in planned] == [("tests=newest 2", 1), ("1d", 0)]
        assert planned[0].journal_bytes > 1_000
        assert await make_retention(connected, endpoint).delete_old() == 0, "all are younger than a day"
        assert await retention.delete_old() == 1
        assert set(await connected.store.executions(ids)) == set(ids[1:])


async def test_a_file_that_does_not_hold_what_was_written_is_no_archive(
    stack: RealStack, kept: KeptPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(archive.CHECKED, archive.EXECUTIONS, "listed || document")
    async with stack.running() as connected:
        ended = await stack.submit(connected)
        await stack.ended(connected, ended)
        with pytest.raises(NoetlError, match="does not hold what was written"):
            await delete_old(stack, connected, "2d", kept.place)
        assert await connected.store.execution(ended) is not None
    assert parquet_files(kept.folder) == []


@pytest.mark.verify
async def test_an_upload_that_is_cut_short_is_no_archive_and_the_next_attempt_completes_it(
    stack: RealStack, storage: ObjectStorage, bucket: KeptPlace
) -> None:
    async with stack.running() as connected:
        ended = await stack.submit(connected, LARGE, "tests/large")
        await stack.ended(connected, ended)
        storage.refused = lambda method, path: method == "PUT" and "/executions/" in path
        with pytest.raises(Unreachable, match=r"s3://.*/executions/.*answers 503"):
            await delete_old(stack, connected, "2d", bucket.place)
        assert await connected.store.execution(ended) is not None
        assert [path.parent.parent.name for path in parquet_files(bucket.folder)] == ["events"]
        with pytest.raises(NotFound):
            ParquetArchive(bucket.files, KEYS).get(ended)
        storage.refused = storage.never
        assert await delete_old(stack, connected, "2d", bucket.place) == 1
    opened = ParquetArchive(bucket.files, KEYS)
    events = opened.events(ended, 0, None)
    assert [one.position for one in events] == list(range(1, opened.get(ended).position + 1))


async def test_a_read_from_object_storage_takes_only_what_it_needs(
    stack: RealStack, storage: ObjectStorage, bucket: KeptPlace
) -> None:
    async with stack.running() as connected:
        ids = [await stack.submit(connected, UNIQUE, "tests/unique") for _ in range(3)]
        for one in ids:
            await stack.ended(connected, one)
        archiver = ExecutionArchiver(
            DirectOperations(connected, stack.endpoint).executions, ParquetArchive(bucket.files, KEYS), month_of
        )
        for one in ids:
            await archiver.keep([one])
    stored = sum(path.stat().st_size for path in parquet_files(bucket.folder / "executions"))
    before, _ = storage.sent_bytes, storage.requests.clear()
    assert ParquetArchive(bucket.files, KEYS).get(ids[1]).execution_id == ids[1]
    assert {ids[1] in path for _, path in storage.requests if ".parquet" in path} == {True}
    assert not any("/events/" in path for _, path in storage.requests)
    assert storage.sent_bytes - before < stored / 3
