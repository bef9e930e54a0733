"""The decoding of response bodies (RFC 9110 §8.4). A stream that is cut off is an error, never a shorter body."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Final

ACCEPTED: Final = "gzip, deflate"
"""The encodings that a request accepts, which :func:`unpacker` knows."""

_PIECE_BYTES: Final = 256 * 1024
_GZIP: Final = 31
_ZLIB: Final = 15
_RAW: Final = -15


class BrokenBody(Exception):
    """A body that does not match its ``Content-Encoding``, or that ends too early."""


class Unpacker:
    """Unpacks gzip, of one member or several, or deflate, with the header of zlib or without it."""

    def __init__(self, encoding: str) -> None:
        self._encoding = encoding
        self._stream: zlib._Decompress | None = None
        self._has_ended = False

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yields the next unpacked bytes of a body, in pieces of bounded size.

        Raises:
            BrokenBody: the bytes are not packed in this way.
        """
        is_full = False
        while data or is_full:
            if self._stream is None or self._stream.eof:
                if self._has_ended and not data.strip(b"\0"):
                    return  # a padded archive
                self._stream = self._decompressor(data)
            try:
                piece = self._stream.decompress(data, _PIECE_BYTES)
            except zlib.error:
                raise BrokenBody(f"the body is not {self._encoding}, as its Content-Encoding says") from None
            self._has_ended = self._stream.eof
            data = self._stream.unused_data if self._has_ended else self._stream.unconsumed_tail
            is_full = len(piece) == _PIECE_BYTES and not self._has_ended
            if piece:
                yield piece

    def finish(self) -> None:
        """Checks that the body has ended.

        Raises:
            BrokenBody: the packed body was cut off.
        """
        if self._stream is not None and not self._has_ended:
            raise BrokenBody(f"the body is incomplete: its {self._encoding} data ends too early")

    def _decompressor(self, data: bytes) -> zlib._Decompress:
        if self._encoding == "gzip":
            return zlib.decompressobj(_GZIP)
        return zlib.decompressobj(_ZLIB if data[0] & 0xF == 8 else _RAW)


def unpacker(encoding: str) -> Unpacker | None:
    """Returns the unpacker of a body with this ``Content-Encoding``; ``None`` for one that is not packed."""
    name = encoding.strip().lower().removeprefix("x-")
    return Unpacker(name) if name in ("gzip", "deflate") else None
