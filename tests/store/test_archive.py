"""Executions that are archived before they are deleted, on a real Postgres and a real nats-server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from real_stack import LARGE, RealStack

from noetl_stream.adapters import archive
from noetl_stream.adapters.archive import ParquetArchive, month_of
from noetl_stream.adapters.clock import SystemClock
from noetl_stream.client.executions.archiving import ExecutionArchiver
from noetl_stream.errors import NoetlError, NotFound, UsageError
from noetl_stream.ports.operations.executions import ExecutionFilter, Executions
from noetl_stream.settings.retention import RetentionRule, RetentionSettings, read_retention
from noetl_stream.wiring.operations import DirectOperations
from noetl_stream.wiring.roles import make_retention
from noetl_stream.wiring.stores import Connected
from warm_program import noetl

DAY_MS = 86_400_000


class Later(SystemClock):
    """Three days from now."""

    def now_ms(self) -> int:
        return super().now_ms() + 3 * DAY_MS


def rules(text: str) -> tuple[RetentionRule, ...]:
    return read_retention("NOETL_RETENTION", {"NOETL_RETENTION": text})


async def delete_old(stack: RealStack, connected: Connected, text: str, archive: Path | None) -> int:
    endpoint = replace(stack.endpoint, retention=RetentionSettings(rules(text), archive))
    return await make_retention(replace(connected, clock=Later()), endpoint).delete_old()


def parquet_files(place: Path) -> list[Path]:
    return list(place.rglob("*.parquet"))


async def shown(executions: Executions, execution_id: str) -> list[Any]:
    """What `get`, `result` and `events` give, as JSON values."""
    found = [
        await executions.get(execution_id),
        await executions.result(execution_id),
        *await executions.events(execution_id, 0, 1000),
    ]
    return [msgspec.to_builtins(one) for one in found]


async def test_an_archive_reads_back_as_get_and_events_gave_it(stack: RealStack, tmp_path: Path) -> None:
    place = tmp_path / "archive"
    async with stack.running() as connected:
        executions = DirectOperations(connected, stack.endpoint).executions
        ids = [await stack.submit(connected, LARGE, "tests/large"), await stack.submit(connected)]
        for one in ids:
            await stack.ended(connected, one)
        before = {one: await shown(executions, one) for one in ids}
        listed = await executions.page(ExecutionFilter(), 10, None)
        assert await delete_old(stack, connected, "2d", place) == 2
        for one in ids:
            with pytest.raises(NotFound):
                await executions.get(one)
    opened = ParquetArchive(place)
    for one in ids:
        read = [opened.get(one), opened.result(one), *opened.events(one, 0, None)]
        assert [msgspec.to_builtins(document) for document in read] == before[one]
    assert opened.page(ExecutionFilter(), 10, None) == listed
    assert [one.execution_id for one in opened.page(ExecutionFilter(path="tests/large"), 10, None).items] == ids[:1]
    assert opened.page(ExecutionFilter(status=["failed"]), 10, None).items == []
    first = opened.page(ExecutionFilter(), 1, None)
    assert [one.execution_id for one in opened.page(ExecutionFilter(), 1, first.next).items] == ids[:1]
    assert len(opened.events(ids[0], 2, 3)) == 3
    assert read_by_commands(place, ids[0]) == before[ids[0]]
    assert len(parquet_files(place)) == 2


def read_by_commands(place: Path, execution_id: str) -> list[Any]:
    """What `get`, `result` and `events` print of an archive, with no server anywhere."""
    nowhere = {"NOETL_NATS_URL": "nats://127.0.0.1:1", "NOETL_POSTGRES_DSN": "postgresql://127.0.0.1:1/none"}
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


async def test_nothing_is_deleted_that_the_archive_does_not_hold(stack: RealStack, tmp_path: Path) -> None:
    async with stack.running() as connected:
        ended = await stack.submit(connected)
        await stack.ended(connected, ended)
        (tmp_path / "file").write_text("")
        with pytest.raises(UsageError, match=r"archive .*/file"):
            await delete_old(stack, connected, "2d", tmp_path / "file")
        assert await connected.store.execution(ended) is not None
        assert await connected.store.journal(ended)


async def test_what_is_archived_already_is_not_archived_again(stack: RealStack, tmp_path: Path) -> None:
    async with stack.running() as connected:
        ended = await stack.submit(connected)
        await stack.ended(connected, ended)
        executions = DirectOperations(connected, stack.endpoint).executions
        archiver = ExecutionArchiver(executions, ParquetArchive(tmp_path), month_of)
        for _ in range(2):
            assert await archiver.keep([ended, "unknown"]) == {ended}
    assert len(parquet_files(tmp_path)) == 2


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
    stack: RealStack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(archive.CHECKED, archive.EXECUTIONS, "listed || document")
    async with stack.running() as connected:
        ended = await stack.submit(connected)
        await stack.ended(connected, ended)
        with pytest.raises(NoetlError, match="does not hold what was written"):
            await delete_old(stack, connected, "2d", tmp_path)
        assert await connected.store.execution(ended) is not None
