"""JSON values: their depth, and their merging (LANGUAGE §12).

The depth is counted in bytes, without recursion. A value from outside nests at most :data:`MAX_DEPTH` levels, so that
later code may recurse.
"""

from __future__ import annotations

from itertools import accumulate
from typing import Any, Final

MAX_DEPTH: Final = 200
"""The most levels of lists and objects in a value."""

MESSAGE_DEPTH: Final = 300
"""The most levels in a message: those of values, of the playbook around them (64 levels of YAML), and of the message.
"""

TOO_DEEP: Final = f"nested more than {MAX_DEPTH} levels deep"

_STEPS: Final = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")
"""An opening bracket is a step down, as a signed byte; a closing one a step up."""

_OTHERS: Final = bytes(byte for byte in range(256) if byte not in b'[{]}"')

_LEAVES: Final = b"\x01\xff"

_PASSES: Final = 3
"""Passes that remove the innermost lists and objects, the majority, before the rest is counted."""

_PIECE: Final = 16 * 1024
"""The number of brackets that are counted at once: other threads run in between."""

CUT: Final = "…"
"""A replacement for a value that is too deep to be shown."""


def nests_deeper(data: bytes, most: int = MAX_DEPTH) -> bool:
    """Whether JSON nests more than ``most`` levels deep, which is at least :data:`_PASSES`."""
    if len(data) <= most or data.count(b"[") + data.count(b"{") <= most:
        return False
    if b"\\" in data:
        data = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    steps = data.translate(_STEPS, _OTHERS).replace(b'""', b"")
    if b'"' in steps:  # there are brackets in texts
        steps = b"".join(steps.split(b'"')[::2])
    for _ in range(_PASSES):
        steps = steps.replace(_LEAVES, b"")
    depth, left = 0, memoryview(steps).cast("b")
    for at in range(0, len(left), _PIECE):
        depths = list(accumulate(left[at : at + _PIECE], initial=depth))
        if max(depths) + _PASSES > most:
            return True
        depth = depths[-1]
    return False


def cut_below(value: Any, most: int) -> None:
    """Replaces each list and object below ``most`` levels of ``value`` by :data:`CUT`."""
    holders = [value] if isinstance(value, dict | list) else []
    for _ in range(most - 1):
        holders = [holder[key] for holder in holders for key in _keys_of_holders(holder)]
    for holder in holders:
        for key in _keys_of_holders(holder):
            holder[key] = CUT


def _keys_of_holders(holder: Any) -> list[Any]:
    """The keys or indices of the lists and objects in a list or object."""
    items = holder.items() if isinstance(holder, dict) else enumerate(holder)
    return [key for key, member in items if isinstance(member, dict | list)]


def deep_merge(base: Any, over: Any) -> Any:
    """Merges mappings key by key; replaces everything else, null included (LANGUAGE §9)."""
    if not (isinstance(base, dict) and isinstance(over, dict)):
        return over
    return {**base, **{key: deep_merge(base[key], value) if key in base else value for key, value in over.items()}}


def merge_patch(target: Any, patch: Any) -> Any:
    """Applies a JSON merge patch (RFC 7396): mappings merge key by key, ``null`` deletes, anything else replaces."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge_patch(merged.get(key), value)
    return merged
