"""How ``ctx`` changes: by whole keys, by a merge patch, and who wrote each key last (LANGUAGE §5, §9)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from noetl_stream.engine.state import Execution, StepRun
from noetl_stream.model import codec
from noetl_stream.model.events import CtxOverwrote, CtxPatched

replace = msgspec.structs.replace


def with_ctx(state: Execution, ctx: dict[str, Any], keys: Iterable[str], writer: str) -> Execution:
    """``state`` with this ``ctx``, in which ``writer`` changed ``keys``: a step run, or ``""``.

    A reducer and someone outside (``""``) overwrite nothing unawares.
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
    """``ctx`` after a patch from outside: whole keys, or a JSON merge patch (RFC 7396)."""
    return merge_patch(ctx, fact.patch) if fact.merge else {**ctx, **fact.patch}


def merge_patch(target: Any, patch: Any) -> Any:
    """RFC 7396: mappings merge key by key, ``null`` deletes a key, anything else replaces."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge_patch(merged.get(key), value)
    return merged
