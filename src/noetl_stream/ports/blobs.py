"""Large values by write-once key (LANGUAGE §10)."""

from __future__ import annotations

from typing import Protocol


class Blobs(Protocol):
    async def put(self, key: str, data: bytes) -> None:
        """Stores ``data``. A key is never overwritten: a second put keeps the first value."""
        ...

    async def get(self, key: str) -> bytes:
        """The bytes of ``key``.

        Raises:
            BlobMissing: the value does not exist, or is damaged.
            Unreachable: no answer in time.
        """
        ...

    async def delete(self, key: str) -> None:
        """Deletes the value of ``key``; does nothing if it does not exist.

        Raises:
            Unreachable: no answer in time.
        """
        ...
