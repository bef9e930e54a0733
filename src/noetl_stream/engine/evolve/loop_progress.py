"""Loop progress: counts and windows as iterations end, at any level of a nested loop."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from noetl_stream.engine.state import LoopState
from noetl_stream.model.events import Path
from noetl_stream.model.messages import LoopProgress
from noetl_stream.model.outcome import EMPTY, ErrorInfo, Payload, Reference

Ending = Literal["ok", "failed", "skipped"]


def loop_at(loop: LoopState | None, path: Path) -> LoopState | None:
    """The level inside the iteration ``path`` (the outermost for ``()``); ``None`` if it is not running."""
    for index in path:
        if loop is None:
            return None
        loop = loop.inner.get(index)
    return loop


def with_loop(outermost: LoopState | None, path: Path, level: LoopState) -> LoopState:
    """``outermost`` with ``level`` placed inside the iteration ``path``."""
    if not path or outermost is None:
        return level
    inner = with_loop(outermost.inner.get(path[0]), path[1:], level)
    return msgspec.structs.replace(outermost, inner={**outermost.inner, path[0]: inner})


def end_iteration(
    loop: LoopState, index: int, ending: Ending, payload: Payload, max_inline_bytes: int, error: ErrorInfo | None = None
) -> LoopState:
    """``loop`` after iteration ``index`` has ended; the same value if it had ended before."""
    if loop.has_ended(index):
        return loop
    done, low = loop.done | 1 << (index - loop.low), loop.low
    while done & 1:
        done >>= 1
        low += 1
    changes: dict[str, Any] = {"done": done, "low": low, ending: getattr(loop, ending) + 1}
    if index in loop.inner:
        changes["inner"] = {key: value for key, value in loop.inner.items() if key != index}
    if ending == "failed" and loop.first_error is None:
        changes["first_error"] = error
    changes |= _keep(loop, index, payload, max_inline_bytes)
    return msgspec.structs.replace(loop, **changes)


def _keep(loop: LoopState, index: int, payload: Payload, max_inline_bytes: int) -> dict[str, Any]:
    size = loop.results_bytes + (payload.reference.size if payload.reference else len(payload.value)) + 1
    if loop.spilled or payload.reference is not None or size > max_inline_bytes:
        return {"results": None, "results_bytes": size, "spilled": True}
    return {"results": (index, payload, loop.results), "results_bytes": size}


def loop_result(loop: LoopState, execution_id: str, step_run_id: str) -> Payload:
    """The iteration results as a list in index order, failed ones null; a journal reference if the list is large."""
    if loop.spilled:
        key = f"{execution_id}.{step_run_id}"
        return Payload(reference=Reference("journal", key, loop.results_bytes, schema_hint=f"array of {loop.count}"))
    found: list[bytes] = [bytes(EMPTY)] * loop.count
    link = loop.results
    while link is not None:
        index, payload, link = link
        found[index] = bytes(payload.value)
    return Payload(msgspec.Raw(b"[" + b",".join(found) + b"]"))


def loop_progress(loop: LoopState, *, with_items: bool = False) -> LoopProgress:
    """The progress of a local loop, for the worker that continues it."""
    above = [loop.low + bit for bit in range(loop.done.bit_length()) if loop.done >> bit & 1]
    inner = {index: loop_progress(level, with_items=True) for index, level in loop.inner.items()}
    items, pages = (loop.items, list(loop.pages)) if with_items else (None, [])
    return LoopProgress(
        low=loop.low,
        above=above,
        ok=loop.ok,
        failed=loop.failed,
        first_error=loop.first_error,
        items=items,
        pages=pages,
        inner=inner,
    )
