"""Objects in several places (NATS, buckets, folders), while they are moved from one to another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from noetl_stream.errors import BlobMissing
from noetl_stream.ports.streams.blobs import Blobs, Method, SignedBlobs
from noetl_stream.protocol.object_addresses import Addresses
from noetl_stream.settings.places import IN_NATS


class PlacedBlobs:
    """:class:`~noetl_stream.ports.streams.blobs.Blobs` in several places: writes go to the first, reads try all.

    Args:
        nats: The objects in NATS.
        places: The places in order; ``None`` is NATS.

    Attributes:
        places: The places, in order.
    """

    def __init__(self, nats: Blobs, places: Sequence[SignedBlobs | None]) -> None:
        self.places: Final[Sequence[Blobs]] = [nats if place is None else place for place in places]
        self._signing = places

    async def put(self, key: str, data: bytes | memoryview) -> None:
        await self.places[0].put(key, data)

    async def get(self, key: str) -> bytes:
        missing = BlobMissing(f"the object store has nothing under {key}")
        for place in self.places:
            try:
                return await place.get(key)
            except BlobMissing as error:
                missing = error
        raise missing

    async def delete(self, key: str) -> bool:
        # Delete from the first place last, so that an object that is being moved there is deleted, too.
        return any([await place.delete(key) for place in reversed(self.places)])

    async def verify(self) -> str:
        """Writes, reads and deletes an object in each place except NATS; returns the names of all places.

        Raises:
            UsageError, Unreachable: as :meth:`~noetl_stream.ports.streams.blobs.SignedBlobs.verify`.
        """
        for place in self._signing:
            if place is not None:
                await place.verify()
        return ", ".join(IN_NATS if place is None else place.place for place in self._signing)

    async def addresses_to_read(self, keys: Sequence[str]) -> Addresses:
        """Signs an address to read each object in each place. Raises the errors of the port."""
        found = [await _addresses(place, "GET", keys) for place in self._signing]
        return {key: [in_place[at] for in_place in found] for at, key in enumerate(keys)}

    async def addresses_to_write(self, keys: Sequence[str]) -> Addresses:
        """Signs an address to write each object in the first place. Raises the errors of the port."""
        found = await _addresses(self._signing[0], "PUT", keys)
        return {key: [address] for key, address in zip(keys, found, strict=True)}


async def _addresses(place: SignedBlobs | None, method: Method, keys: Sequence[str]) -> Sequence[str]:
    if not keys:
        return ()
    return [IN_NATS] * len(keys) if place is None else await place.addresses(method, keys)
