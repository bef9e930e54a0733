"""Objects that move from NATS to a folder, and what happens to those that are touched meanwhile."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from noetl_stream.adapters.files.object_places import ObjectPlace
from noetl_stream.adapters.memory.broker import MemoryBlobs
from noetl_stream.backup.move import move
from noetl_stream.errors import BlobMissing, Unreachable
from noetl_stream.ports.backup import BackupDatabase, DatabaseShape, TableShape
from noetl_stream.storage.object_places import PlacedBlobs
from noetl_testkit.memory.broker import StagedBroker

EVENT = TableShape("event", ("data",))
ROWS = (
    b'{"reference":{"store":"nats","key":"e/c/1.1.n/0"}}\n'
    b'{"file":{"key":"e/c/1.1.n/1/parts-200","size":1}}\n{"file":{"key":"made/up/1.1.n/1/parts-9999999"}}\n'
)
PARTS = [f"e/c/1.1.n/1/{number}" for number in range(200)]
KEYS = ["e/c/1.1.n/0", "e/c/1.1.n/1/head", *PARTS]


class Database:
    """A database whose only table that names objects has these rows."""

    shape = DatabaseShape([], 1, [EVENT, TableShape("meta", ("key",))], {}, [])

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[Any]:
        yield self

    async def copy(self, _table: TableShape, sink: Any) -> int:
        await sink(ROWS[:40])
        await sink(ROWS[40:])
        return 3


DATABASE = cast(BackupDatabase, Database())


@pytest.fixture
async def nats() -> MemoryBlobs:
    blobs = StagedBroker().blobs
    for key in KEYS:
        await blobs.put(key, key.encode())
    return blobs


@pytest.fixture
def folder(tmp_path: Path) -> ObjectPlace:
    return ObjectPlace(tmp_path)


async def missing(blobs: Any, keys: list[str]) -> list[str]:
    found = []
    for key in keys:
        try:
            await blobs.get(key)
        except BlobMissing:
            found.append(key)
    return found


async def test_all_that_rows_name_is_moved_and_read_in_both_places(nats: MemoryBlobs, folder: ObjectPlace) -> None:
    places = PlacedBlobs(nats, [folder, None])
    await nats.put("unnamed", b"stays")
    assert await missing(places, KEYS) == []
    found = await move(DATABASE, *places.places)
    assert (found.moved, found.bytes, found.differing) == (len(KEYS), sum(map(len, KEYS)), [])
    assert await missing(places, [*KEYS, "unnamed"]) == []
    assert await missing(nats, KEYS) == KEYS
    assert (await move(DATABASE, *places.places)).moved == 0


async def test_a_move_that_was_interrupted_goes_on(nats: MemoryBlobs, folder: ObjectPlace) -> None:
    class Breaking(MemoryBlobs):
        left = 150

        async def get(self, key: str) -> bytes:
            self.left -= 1
            if not self.left:
                raise Unreachable("away")
            return await nats.get(key)

        async def delete(self, key: str) -> bool:
            return await nats.delete(key)

    with pytest.raises(Unreachable):
        await move(DATABASE, folder, Breaking(cast(Any, None)))
    moved = await missing(nats, KEYS)
    assert 64 < len(moved) < len(KEYS)
    assert (await move(DATABASE, folder, nats)).moved == len(KEYS) - len(moved)
    assert await missing(folder, KEYS) == []


async def test_differing_objects_stay_in_both_places_and_are_named(nats: MemoryBlobs, folder: ObjectPlace) -> None:
    await folder.put(PARTS[3], b"other")
    found = await move(DATABASE, folder, nats)
    assert found.differing == [PARTS[3]]
    assert await missing(nats, KEYS) == [key for key in KEYS if key != PARTS[3]]


async def test_a_deletion_deletes_in_all_places(nats: MemoryBlobs, folder: ObjectPlace) -> None:
    places = PlacedBlobs(nats, [folder, None])
    await folder.put("e/c/1.1.n/0", b"copied")
    assert await places.delete("e/c/1.1.n/0")
    assert not await places.delete("e/c/1.1.n/0")
    assert await missing(places, KEYS) == ["e/c/1.1.n/0"]
