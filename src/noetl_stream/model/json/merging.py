"""Merging JSON values: a workload over its defaults, and a merge patch over ``ctx``."""

from __future__ import annotations

from typing import Any


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
