"""Large values by write-once key (LANGUAGE §10)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Any, Final, Literal, Protocol

from noetl_stream.errors import BlobMissing
from noetl_stream.model.json import codec, pieces
from noetl_stream.model.outcome import Reference

MUCH_BYTES: Final = 1024 * 1024
"""The checksum of more takes milliseconds."""

MISSING_CODES: Final = ("NoSuchKey", "BlobNotFound")
"""Storage error codes for a missing object. Other errors, such as a missing bucket, can be corrected."""

Method = Literal["GET", "PUT"]

ADDRESS_LASTS_S: Final = 600.0
"""The validity of a signed address, in seconds."""


class BlobAccess(Protocol):
    """Reading and writing of large values. Workers have no more: servers delete."""

    async def put(self, key: str, data: bytes | memoryview) -> None:
        """Stores ``data``. A key is never overwritten: a second put keeps the first value."""

    async def get(self, key: str) -> bytes:
        """The bytes of ``key``.

        Raises:
            BlobMissing: the value does not exist, or is damaged.
            Unreachable: no answer in time.
        """


class Blobs(BlobAccess, Protocol):
    async def delete(self, key: str) -> bool:
        """Deletes the value of ``key``; returns whether it existed.

        Raises:
            Unreachable: no answer in time.
        """


class SignedBlobs(Blobs, Protocol):
    """Objects in a place that workers have no credentials for. They use signed addresses of single objects.

    Attributes:
        place: The place as messages show it.
    """

    place: str

    async def addresses(self, method: Method, keys: Sequence[str]) -> Sequence[str]:
        """Signs an address for each key, valid for :data:`ADDRESS_LASTS_S` seconds.

        Raises:
            Unreachable: the signing service cannot be reached.
        """

    async def verify(self) -> None:
        """Writes, reads and deletes an object.

        Raises:
            UsageError: the place refuses access; the message has the reason.
            Unreachable: the place does not answer in time.
        """


class ObjectsByAddress(Protocol):
    """Reads and writes objects by signed address. Raises :class:`~noetl_stream.errors.Forbidden` if access is
    refused, and :class:`~noetl_stream.errors.Unreachable` if there is no answer.
    """

    async def put(self, address: str, data: bytes | memoryview) -> None:
        """Writes an object; see :meth:`Blobs.put`."""

    async def get(self, address: str) -> bytes | None:
        """Reads an object; ``None`` if it does not exist."""


async def read_object(blobs: BlobAccess, reference: Reference) -> bytes:
    """The value of a reference with ``store: nats``.

    Raises:
        BlobMissing: it does not exist, or differs from the stored value.
        Unreachable: no answer in time.
    """
    data = await blobs.get(reference.key)
    if reference.checksum and reference.checksum != await found_checksum(data):
        raise BlobMissing(f"the object {reference.key} is damaged: its checksum differs")
    return data


def checksum_of(data: bytes) -> str:
    """The checksum of ``data`` as in references."""
    return f"sha256:{sha256(data).hexdigest()}"


async def found_checksum(data: bytes) -> str:
    """The checksum of ``data`` as in references; that of much data is computed beside the loop."""
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
