"""Objects sealed with the keys of their executions: the one place where they are sealed and opened (PROTOCOL §7)."""

from __future__ import annotations

from noetl_stream.errors import BlobMissing
from noetl_stream.ports.streams.blobs import BlobAccess, Blobs
from noetl_stream.sealing.objects import CannotUnseal, ObjectKeys, open_object, seal_object


class SealedAccess:
    """:class:`~noetl_stream.ports.streams.blobs.BlobAccess` whose values nobody else can read or replace unnoticed.

    Sizes and checksums of references are those of the values, not of the sealed bytes.
    """

    def __init__(self, blobs: BlobAccess, keys: ObjectKeys) -> None:
        self._blobs = blobs
        self._keys = keys

    async def put(self, key: str, data: bytes | memoryview) -> None:
        """See the port.

        Raises:
            CannotUnseal: the keys of its owner are not held here.
        """
        await self._blobs.put(key, seal_object(self._keys, key, data))

    async def get(self, key: str) -> bytes:
        stored = await self._blobs.get(key)
        try:
            return open_object(self._keys, key, stored)
        except CannotUnseal as error:
            raise BlobMissing(error.message, hint=error.hint) from None


class SealedBlobs(SealedAccess):
    """:class:`SealedAccess` with deletion."""

    def __init__(self, blobs: Blobs, keys: ObjectKeys) -> None:
        super().__init__(blobs, keys)
        self.delete = blobs.delete
