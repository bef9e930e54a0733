"""Large values, by write-once key (LANGUAGE §10)."""

from __future__ import annotations

from typing import Protocol


class Blobs(Protocol):
    async def put(self, key: str, data: bytes) -> None:
        """Stores ``data``. A key is never overwritten: putting it again leaves the first value."""
        ...

    async def get(self, key: str) -> bytes:
        """The bytes of ``key``.

        Raises:
            BlobMissing: nothing there, or damaged.
            Unreachable: no answer in time.
        """
        ...

    async def delete(self, key: str) -> None:
        """Forgets the value of ``key``; one that is not there is no error.

        Raises:
            Unreachable: no answer in time.
        """
        ...
