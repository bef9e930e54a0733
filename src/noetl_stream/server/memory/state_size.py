"""Estimates the memory of states from the JSON that they were made of. ``benchmarks/states.py`` compares."""

from __future__ import annotations

from typing import Final

STATE_BYTES: Final = 5 * 1024
"""Memory of an execution in addition to values: its structs, tables, and the entry of the cache."""

EVICTED_BYTES: Final = 256
"""Memory of an evicted execution: its id, and the commands it is owed."""

SMALL_BYTES: Final = 512
"""The size up to which facts are not examined: most have no value that is kept."""

SMALL_FACTOR: Final = 2

BRACKET_BYTES: Final = 160
"""Memory of each JSON object and list: an empty one, and its place in another."""

COMMA_BYTES: Final = 64
"""Memory of each member and element: a number or a short text, and its place."""


def decoded_bytes(data: bytes) -> int:
    """Estimates the memory that the values in this JSON take: too much rather than too little."""
    if len(data) <= SMALL_BYTES:
        return SMALL_FACTOR * len(data)
    return values_bytes(data)


def values_bytes(data: bytes) -> int:
    """Estimates memory like :func:`decoded_bytes`, of JSON that is only values. Counts bytes, also those in texts."""
    brackets = data.count(b"{") + data.count(b"[")
    return 2 * len(data) + BRACKET_BYTES * brackets + COMMA_BYTES * data.count(b",")
