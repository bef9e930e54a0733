"""Files and tables in backups: all parts of each, and no more than exist of what looks like one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from noetl_stream.adapters.clock import SystemClock
from noetl_stream.adapters.files.folder import FolderFiles
from noetl_stream.adapters.memory.broker import MemoryBlobs
from noetl_stream.backup.create import BackupOrigin, create_backup
from noetl_stream.backup.reader import BackupReader
from noetl_stream.backup.restore import problems_of
from noetl_stream.ports.backup import DatabaseShape, Sink, TableShape
from noetl_stream.sealing.file_keys import FileKeys
from noetl_stream.sealing.keys import new_key
from noetl_testkit.memory.broker import StagedBroker
from written_backups import SHAPES

FILE = "e/c/r/0"


class Rows:
    """A database whose journal is these lines."""

    shape = DatabaseShape([("0034_limit_slot", "")], 3, SHAPES, {}, [])

    def __init__(self, *events: str) -> None:
        self._events = events

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[Any]:
        yield self

    async def copy(self, table: TableShape, sink: Sink) -> int:
        events = self._events if table.name == "event" else ()
        await sink("".join(f"e\t{event}\n" for event in events).encode())
        return len(events)


async def backed_up(tmp_path: Path, blobs: MemoryBlobs, *keys: str) -> BackupReader:
    rows: Any = Rows(*(f'{{"file":{{"key":"{key}","size":1}}}}' for key in keys))
    origin = BackupOrigin("ann@host", "postgresql://db.example/noetl")
    return await create_backup(
        rows, blobs, SystemClock(), FolderFiles(tmp_path), keys=FileKeys(new_key()), origin=origin
    )


@pytest.fixture
async def blobs() -> MemoryBlobs:
    found: MemoryBlobs = StagedBroker(SystemClock()).blobs
    for number in range(3):
        await found.put(f"{FILE}/{number}", b"part %d" % number)
    return found


async def test_all_parts_of_a_file_are_in_a_backup(tmp_path: Path, blobs: MemoryBlobs) -> None:
    made = await backed_up(tmp_path, blobs, f"{FILE}/parts-3", f"{FILE}/parts-3")
    assert list(made.objects()) == [(f"{FILE}/{number}", b"part %d" % number) for number in range(3)]
    assert (made.manifest.missing, problems_of(made)) == ([], [])


async def test_the_first_rows_of_a_table_are_in_a_backup(tmp_path: Path, blobs: MemoryBlobs) -> None:
    await blobs.put(f"{FILE}/head", b"rows")
    made = await backed_up(tmp_path, blobs, f"{FILE}/parts-3", f"{FILE}/parts-3")
    assert dict(made.objects())[f"{FILE}/head"] == b"rows"
    assert (made.manifest.objects, problems_of(made)) == (4, [])


async def test_a_lost_part_is_reported_and_an_invented_number_of_parts_costs_nothing(
    tmp_path: Path, blobs: MemoryBlobs
) -> None:
    made = await backed_up(tmp_path, blobs, f"{FILE}/parts-3", f"{FILE}/parts-9999999", "x/parts-9999999")
    assert [key for key, _ in made.objects()] == [f"{FILE}/{number}" for number in range(3)]
    assert made.manifest.missing == [f"{FILE}/parts-9999999", "x/parts-9999999"]
    await blobs.delete(f"{FILE}/1")
    made = await backed_up(tmp_path / "lossy", blobs, f"{FILE}/parts-3")
    assert (made.manifest.missing, problems_of(made)) == ([f"{FILE}/parts-3"], [])
