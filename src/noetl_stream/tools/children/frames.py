"""Frames of messages between processes: a big-endian length of four bytes, then the message.

Imports the standard library only: it is loaded in interpreters of environments too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

HEADER_BYTES: Final = 4


def add_length(body: bytes) -> bytes:
    return len(body).to_bytes(HEADER_BYTES, "big") + body


def take_frames(received: bytearray) -> Iterator[bytes]:
    """Removes and yields the complete messages of the received bytes; the rest stays."""
    while len(received) >= HEADER_BYTES:
        end = HEADER_BYTES + int.from_bytes(received[:HEADER_BYTES], "big")
        if len(received) < end:
            return
        frame = bytes(received[HEADER_BYTES:end])
        del received[:end]
        yield frame
