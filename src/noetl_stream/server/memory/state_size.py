"""How much memory states take, estimated from the JSON that they were made of. ``benchmarks/states.py`` compares."""

from __future__ import annotations

from typing import Final

STATE_BYTES: Final = 5 * 1024
"""What an execution takes in memory in addition to values: its structs, tables, and the entry of the cache."""

EVICTED_BYTES: Final = 256
"""What an execution takes that is not in memory: its id, and what it is owed."""

SMALL_BYTES: Final = 512
"""Facts up to this size are not looked into: most have no value that is kept."""

SMALL_FACTOR: Final = 2

BRACKET_BYTES: Final = 160
"""For each object and list: what an empty one takes, and its place in another."""

COMMA_BYTES: Final = 64
"""For each member and element: a number or a short text, and its place."""


def decoded_bytes(data: bytes) -> int:
    """About how much memory the values in this JSON take: too much rather than too little."""
    if len(data) <= SMALL_BYTES:
        return SMALL_FACTOR * len(data)
    return values_bytes(data)


def values_bytes(data: bytes) -> int:
    """As :func:`decoded_bytes`, of JSON that is nothing but values. Only counts bytes, those in texts too."""
    brackets = data.count(b"{") + data.count(b"[")
    return 2 * len(data) + BRACKET_BYTES * brackets + COMMA_BYTES * data.count(b",")
