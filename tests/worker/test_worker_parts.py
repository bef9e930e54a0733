"""The parts of files: sealed, written and read, a few in memory at a time."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from hashlib import sha256

import pytest

from noetl_stream.errors import BlobMissing
from noetl_stream.sealing.data_references import PART_BYTES, DataReference
from noetl_stream.sealing.keys import KEY_BYTES, open_bytes, seal_large
from noetl_stream.storage.data_parts import read_parts, write_parts
from noetl_testkit.waiting import until

KEY = os.urandom(KEY_BYTES)


async def pieces_of(content: bytes, size: int) -> AsyncIterator[bytes]:
    for at in range(0, len(content), size):
        yield content[at : at + size]


@pytest.mark.parametrize("size", [0, 1, 15, 16, 17, 100_000])
def test_what_is_sealed_without_a_copy_is_opened_as_all_else(size: int) -> None:
    value = os.urandom(size)
    sealed = seal_large(KEY, value, b"place")
    assert open_bytes(KEY, sealed, b"place") == value
    assert open_bytes(KEY, sealed, b"another place") is None


@pytest.mark.parametrize("piece", [1_000_003, PART_BYTES, 3 * PART_BYTES])
async def test_parts_of_any_pieces_are_read_as_they_were_written(piece: int) -> None:
    content, stored = os.urandom(5 * PART_BYTES + 7), {}

    async def put(key: str, sealed: memoryview) -> None:
        stored[key] = bytes(sealed)
        for _ in range(3):  # the next part is sealed meanwhile
            await asyncio.to_thread(sha256, sealed)
        assert bytes(sealed) == stored[key], "the memory of a part is used again once it is stored"

    async def get(key: str) -> bytes:
        return stored[key]

    written = await write_parts(pieces_of(content, piece), "x/", KEY, put)
    assert (written.size, written.checksum) == (len(content), f"sha256:{sha256(content).hexdigest()}")
    assert list(stored) == [f"x/{number}" for number in range(6)]
    reference = DataReference(written.parts.key, written.size, written.checksum)
    assert b"".join([part async for part in read_parts(reference, KEY, get)]) == content
    damaged = DataReference(written.parts.key, written.size, f"sha256:{'0' * 64}")
    with pytest.raises(BlobMissing, match="size or checksum differs"):
        _ = [part async for part in read_parts(damaged, KEY, get)]


async def test_one_part_is_read_and_one_sealed_while_one_is_stored() -> None:
    read, answered = 0, asyncio.Event()

    async def pieces() -> AsyncIterator[bytes]:
        nonlocal read
        for _ in range(6):
            assert read < 3 or answered.is_set(), "no more is read than fits in memory"
            read += 1
            yield bytes(PART_BYTES)

    async def put(_key: str, _sealed: memoryview) -> None:
        await answered.wait()

    writing = asyncio.create_task(write_parts(pieces(), "x/", KEY, put))
    await until(lambda: read == 3 or writing.done())
    answered.set()
    assert (await writing).size == 6 * PART_BYTES


async def test_a_part_that_cannot_be_stored_ends_the_writing() -> None:
    async def put(_key: str, _sealed: memoryview) -> None:
        raise BlobMissing("refused")

    with pytest.raises(BlobMissing, match="refused"):
        await write_parts(pieces_of(bytes(6 * PART_BYTES), PART_BYTES), "x/", KEY, put)
