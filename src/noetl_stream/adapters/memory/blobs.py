"""Large values in memory."""

from __future__ import annotations

from noetl_stream.adapters.memory.line import Line
from noetl_stream.errors import BlobMissing


class MemoryBlobs:
    """:class:`~noetl_stream.ports.blobs.Blobs` in memory."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self._values: dict[str, bytes] = {}

    async def put(self, key: str, data: bytes) -> None:
        """See :meth:`noetl_stream.ports.blobs.Blobs.put`.

        Raises:
            Unreachable: the broker was stopped.
        """
        self._line.check()
        self._values.setdefault(key, bytes(data))

    async def get(self, key: str) -> bytes:
        self._line.check()
        try:
            return self._values[key]
        except KeyError:
            raise BlobMissing(f"the object store has nothing under {key}") from None

    async def delete(self, key: str) -> None:
        self._line.check()
        self._values.pop(key, None)

    @property
    def keys(self) -> list[str]:
        """The keys that have a value, for a test to look at."""
        return list(self._values)

    def lose(self, key: str) -> None:
        """Loses a value, as a damaged disk would."""
        self._values.pop(key, None)
