"""Large values by write-once key (LANGUAGE §10), and the results of loops gathered from them (LANGUAGE §6)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Any, Final, Protocol

from noetl_stream.errors import BlobMissing, PayloadRefused
from noetl_stream.model.events import LoopDone, LoopIterationDone, LoopStarted, Path, TaskProcessed
from noetl_stream.model.json import codec, pieces
from noetl_stream.model.outcome import Payload, Reference
from noetl_stream.ports.stores.store import Store

MAX_GATHERED_BYTES: Final = 256 * 1024 * 1024
"""The most bytes of a loop's result that are gathered, as many as a worker loads."""

MUCH_BYTES: Final = 1024 * 1024
"""The checksum of more takes milliseconds."""


class Blobs(Protocol):
    async def put(self, key: str, data: bytes) -> None:
        """Stores ``data``. A key is never overwritten: a second put keeps the first value."""

    async def get(self, key: str) -> bytes:
        """The bytes of ``key``.

        Raises:
            BlobMissing: the value does not exist, or is damaged.
            Unreachable: no answer in time.
        """

    async def delete(self, key: str) -> None:
        """Deletes the value of ``key``, if it exists.

        Raises:
            Unreachable: no answer in time.
        """


async def read_object(blobs: Blobs, reference: Reference) -> bytes:
    """The value that a reference with ``store: nats`` leads to.

    Raises:
        BlobMissing: it does not exist, or is not the value that was stored.
        Unreachable: no answer in time.
    """
    data = await blobs.get(reference.key)
    if reference.checksum and reference.checksum != await found_checksum(data):
        raise BlobMissing(f"the object {reference.key} is damaged: its checksum differs")
    return data


def checksum_of(data: bytes) -> str:
    """The checksum that references hold."""
    return f"sha256:{sha256(data).hexdigest()}"


async def found_checksum(data: bytes) -> str:
    """The checksum that references hold; that of much data is computed beside the loop."""
    return checksum_of(data) if len(data) < MUCH_BYTES else await asyncio.to_thread(checksum_of, data)


async def decoded(data: bytes, decode: Callable[[bytes], Any] = pieces.decode) -> Any:
    """The value that this JSON encodes; long JSON is decoded beside the loop.

    Raises:
        PayloadRefused: it is not JSON.
    """
    return decode(data) if len(data) < pieces.LONG_BYTES else await asyncio.to_thread(decode, data)


async def encoded(value: Any) -> bytes:
    """The JSON of a value; long JSON is encoded beside the loop.

    Raises:
        PayloadRefused: JSON cannot represent it.
    """
    return codec.encode(value) if not pieces.is_long(value) else await asyncio.to_thread(pieces.encode, value)


async def gather_iterations(
    store: Store, blobs: Blobs, execution_id: str, step_run_id: str, max_bytes: int = MAX_GATHERED_BYTES
) -> bytes:
    """The JSON of a loop's result, in index order: failed and skipped iterations are null, inner loops nested lists.

    Raises:
        BlobMissing: the journal has no such loop, or a result of its iterations is lost.
        PayloadRefused: the results have more than ``max_bytes``.
    """
    last: dict[Path, Payload] = {}
    results: dict[Path, Payload] = {}
    counts: dict[Path, int] = {}
    for row in await store.iteration_results(execution_id, step_run_id):
        fact = codec.decode_fact(row.data)
        if isinstance(fact, TaskProcessed):
            last[fact.path] = fact.outcome.result
        elif isinstance(fact, LoopIterationDone):
            results[fact.path] = last.get(fact.path, Payload())
        elif isinstance(fact, LoopDone) or (isinstance(fact, LoopStarted) and not fact.path):
            counts[fact.path] = fact.count
    if () not in counts:
        raise BlobMissing(f"the journal of execution {execution_id} has no loop of step run {step_run_id}")
    size = sum(one.reference.size if one.reference else len(bytes(one.value)) for one in results.values())
    if size > max_bytes:
        raise PayloadRefused(f"the results of the loop have {size:,} bytes, and at most {max_bytes:,} are gathered")
    return await _level((), counts, results, blobs)


async def _level(path: Path, counts: Mapping[Path, int], results: Mapping[Path, Payload], blobs: Blobs) -> bytes:
    parts = []
    for index in range(counts[path]):
        inner = (*path, index)
        if inner in counts:
            parts.append(await _level(inner, counts, results, blobs))
            continue
        payload = results.get(inner, Payload())
        parts.append(await read_object(blobs, payload.reference) if payload.reference else bytes(payload.value))
    return b"[" + b",".join(parts) + b"]"
