"""Files that are read from any place, and those that are verified chunk by chunk as they are read."""

from __future__ import annotations

import os
from abc import abstractmethod
from io import BufferedReader, RawIOBase
from typing import Any, BinaryIO, Final, cast

CHUNK_BYTES: Final = 64 << 10


class SizedReader(RawIOBase):
    """A file of known size, which is read from any place in it."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self.size}[whence]
        return self._at


class ChunkReader(SizedReader):
    """A file whose chunks are returned only after verification.

    Sequential reads read each chunk once, and in order.

    Args:
        size: The bytes of the whole file; all chunks but the last have :data:`CHUNK_BYTES`.
    """

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self._held_number = -1
        self._held = b""

    @abstractmethod
    def load(self, first: int, last: int) -> bytes:
        """Reads and checks the chunks from ``first`` to ``last``."""

    def readinto(self, buffer: Any) -> int:
        end = min(self._at + len(buffer), self.size)
        if self._at >= end:
            return 0
        first, last = self._at // CHUNK_BYTES, (end - 1) // CHUNK_BYTES
        data = self._load_unless_held(first, last)
        start = self._at - first * CHUNK_BYTES
        piece = data[start : start + end - self._at]
        buffer[: len(piece)] = piece
        self._at += len(piece)
        return len(piece)

    def _load_unless_held(self, first: int, last: int) -> bytes:
        held = self._held if first == self._held_number else b""
        following = first + bool(held)
        data = held + (self.load(following, last) if following <= last else b"")
        self._held_number, self._held = last, data[(last - first) * CHUNK_BYTES :]
        return data


def buffered(reader: RawIOBase, buffer_bytes: int = CHUNK_BYTES) -> BinaryIO:
    """Makes reads of any length of a file."""
    return cast(BinaryIO, BufferedReader(reader, buffer_bytes))
