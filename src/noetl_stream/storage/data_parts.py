"""Files and tables in the object store: sealed parts, of which a few are in memory at a time (PROTOCOL §3)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing
from hashlib import sha256
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from noetl_stream.errors import BlobMissing
from noetl_stream.ports.streams.blobs import Blobs
from noetl_stream.sealing.data_references import (
    PART_BYTES,
    DataReference,
    StoredParts,
    data_key_of,
    fitting_rows,
    head_key,
    open_part,
    parts_of,
    seal_part,
)
from noetl_stream.sealing.keys import SEAL_BYTES, KeyRing, large_buffer

Value = TypeVar("Value")

MISSING_IN_A_ROW: Final = 64
"""The number of missing parts after which no further ones are expected: a deletion may have been interrupted."""


class Written(NamedTuple):
    """A written file or table: its parts, its bytes, and its checksum as in references."""

    parts: StoredParts
    size: int
    checksum: str


async def write_parts(
    pieces: AsyncIterator[bytes], prefix: str, data_key: bytes, put: Callable[[str, memoryview], Awaitable[None]]
) -> Written:
    """Writes bytes in parts, in order. While one part is stored, the next one is sealed, and the one after it read.

    Args:
        prefix: The prefix of the keys of the parts.
        put: Stores a sealed part, whose memory is used again afterwards. Its errors end the writing.
    """
    digest, size, number = sha256(), 0, 0
    memory = _buffers(PART_BYTES + SEAL_BYTES)
    sealing: asyncio.Task[memoryview] | None = None
    storing: asyncio.Task[None] | None = None

    def seal(key: str, part: memoryview) -> memoryview:
        digest.update(part)
        memory.reverse()
        return seal_part(data_key, key, part, memory[0])

    async def store_sealed() -> None:
        """Begins to store the part that is being sealed, once the one before it is stored."""
        nonlocal storing
        if sealing is not None:
            sealed = await sealing
            if storing is not None:
                await storing
            storing = asyncio.create_task(_done(put, f"{prefix}{number - 1}", sealed))

    try:
        async with aclosing(_parts(pieces)) as parts:
            async for part in parts:
                size += len(part)
                await store_sealed()
                sealing = asyncio.create_task(asyncio.to_thread(seal, f"{prefix}{number}", part))
                del part
                number += 1
        await store_sealed()
        if storing is not None:
            await storing
    finally:
        await _end(sealing, storing)
    return Written(StoredParts(prefix, number), size, f"sha256:{digest.hexdigest()}")


async def read_parts(
    reference: DataReference, data_key: bytes, get: Callable[[str], Awaitable[bytes]]
) -> AsyncGenerator[bytes, None]:
    """The bytes of a file or table, part by part. While one is used, the next one is fetched and opened.

    Raises:
        BlobMissing: parts are missing, or are not those that were written.
    """
    digest, size, parts = sha256(), 0, parts_of(reference.key)
    keys = [] if parts is None else [f"{parts.prefix}{number}" for number in range(parts.total or 0)]

    async def fetched(key: str) -> bytes:
        return await _opened(reference, data_key, key, await get(key))

    fetching = asyncio.create_task(fetched(keys[0])) if keys else None
    hashing: asyncio.Task[None] | None = None
    try:
        for number in range(1, len(keys) + 1):
            assert fetching is not None
            part = await fetching
            fetching = asyncio.create_task(fetched(keys[number])) if number < len(keys) else None
            if hashing is not None:
                await hashing
            hashing = asyncio.create_task(asyncio.to_thread(digest.update, part))
            size += len(part)
            yield part
            del part
        if hashing is not None:
            await hashing
    finally:
        await _end(fetching, hashing)
    if size != reference.size or f"sha256:{digest.hexdigest()}" != reference.checksum:
        raise BlobMissing(f"{reference.what} is damaged: its size or checksum differs")


async def read_part(
    reference: DataReference, data_key: bytes, number: int, get: Callable[[str], Awaitable[bytes]]
) -> bytes:
    """Reads one part of a file or table. Parts may be read in any order.

    Raises:
        BlobMissing: the part is missing, or was modified.
    """
    parts = parts_of(reference.key)
    key = f"{'' if parts is None else parts.prefix}{number}"
    return await _opened(reference, data_key, key, await get(key))


def sealed_head(rows: Sequence[Any], key: str, data_key: bytes) -> memoryview:
    """Seals the first rows of the table with this key for storage."""
    return seal_part(data_key, head_key(key), msgspec.json.encode(fitting_rows(rows)))


async def read_head(table: DataReference, ring: KeyRing, get: Callable[[str], Awaitable[bytes]]) -> bytes:
    """Reads the first rows of a table as JSON. The table must be sealed for the execution with ``ring``.

    Raises:
        BlobMissing: it is not, or the rows are missing or modified.
    """
    data_key, key = data_key_of(table, (ring,)), head_key(table.key)
    if data_key is None:
        raise BlobMissing("it is not a table of this execution: only its values look like one")
    opened = open_part(data_key, key, await get(key))
    if opened is None:
        raise BlobMissing(f"the first rows of the table, {key}, were modified in the store")
    return opened


async def delete_object(blobs: Blobs, key: str) -> None:
    """Deletes the object with this key, or all parts that it stands for."""
    parts = parts_of(key)
    if parts is None:
        await blobs.delete(key)
        return
    await blobs.delete(head_key(key))
    number = missing = 0
    while missing < MISSING_IN_A_ROW and number != parts.total:
        missing = 0 if await blobs.delete(f"{parts.prefix}{number}") else missing + 1
        number += 1


async def _opened(reference: DataReference, data_key: bytes, key: str, sealed: bytes) -> bytes:
    part = await asyncio.to_thread(open_part, data_key, key, sealed)
    if part is None:
        raise BlobMissing(f"the part {key} of {reference.what} was modified in the store")
    return part


async def _parts(pieces: AsyncIterator[bytes]) -> AsyncGenerator[memoryview, None]:
    """Yields the parts of the bytes. Each is overwritten by the second one after it: new memory costs more than a copy.

    The memory is taken from the system directly, which gives it as it is written: most files are small.
    """
    buffers = _buffers(PART_BYTES)
    filled = 0
    async for piece in pieces:
        left = memoryview(piece)
        while left:
            taken = left[: PART_BYTES - filled]
            left = left[len(taken) :]
            buffers[0][filled : filled + len(taken)] = taken
            filled += len(taken)
            if filled == PART_BYTES:
                yield buffers[0]
                buffers.reverse()
                filled = 0
    if filled:
        yield buffers[0][:filled]


def _buffers(size: int) -> list[memoryview]:
    """Two buffers that are used by turns."""
    return [memoryview(large_buffer(size)) for _ in range(2)]


async def _done(action: Callable[..., Awaitable[Value]], *given: Any) -> Value:
    return await action(*given)


async def _end(*tasks: asyncio.Task[Any] | None) -> None:
    """Cancels the tasks that run, and waits until they have ended."""
    running = [task for task in tasks if task is not None and not task.done()]
    for task in running:
        task.cancel()
    if running:
        await asyncio.wait(running)
