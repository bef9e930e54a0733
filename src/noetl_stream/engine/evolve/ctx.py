"""How ``ctx`` changes: by key, by merge patch, and which step run wrote each key last (LANGUAGE §5, §9)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from noetl_stream.engine.state import Execution, StepRun
from noetl_stream.model import codec
from noetl_stream.model.events import CtxOverwrote, CtxPatched

replace = msgspec.structs.replace


def with_ctx(state: Execution, ctx: dict[str, Any], keys: Iterable[str], writer: str) -> Execution:
    """``state`` with a new ``ctx`` in which ``writer``, a step run or ``""``, changed ``keys``.

    Reducers and clients (``""``) never count as overwriting.
    """
    at = state.position + 1
    run = state.runs.get(writer)
    if run is not None:
        others = [key for key in keys if _changed_since(state, key, run)]
        if others:
            state = replace(state, overwrote=CtxOverwrote(writer, others))
    writers = {**state.writers, **dict.fromkeys(keys, (writer, at))}
    return replace(state, ctx=ctx, ctx_bytes=len(codec.encode(ctx)), ctx_version=at, writers=writers)


def _changed_since(state: Execution, key: str, run: StepRun) -> bool:
    writer, at = state.writers.get(key, ("", 0))
    return at > run.claimed_at and writer != run.step_run_id


def patched(ctx: dict[str, Any], fact: CtxPatched) -> dict[str, Any]:
    """``ctx`` after a client's patch: whole keys, or a JSON merge patch (RFC 7396)."""
    return merge_patch(ctx, fact.patch) if fact.merge else {**ctx, **fact.patch}


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
