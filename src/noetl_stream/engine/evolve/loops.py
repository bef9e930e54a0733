"""Changes of loops, at any level: by the server's facts, as commands are issued, as iterations end (LANGUAGE §6)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal

import msgspec
from msgspec.structs import replace

from noetl_stream.engine.evolve import Rules, with_run
from noetl_stream.engine.state import Execution, LoopState, StepRun
from noetl_stream.model import events
from noetl_stream.model.events import Path
from noetl_stream.model.messages import LoopProgress
from noetl_stream.model.outcome import EMPTY, ErrorInfo, Payload, Reference
from noetl_stream.sealing.data_references import read_reference


def items_of(value: Any) -> list[Any] | None:
    """The items of a loop over ``value``; ``None`` if it cannot be iterated (LANGUAGE §6)."""
    if isinstance(value, dict):
        if read_reference(value) is not None:
            return None
        return [{"key": key, "value": item} for key, item in value.items()]
    return value if isinstance(value, list) else None


def named_items(state: Execution, run: StepRun, source: Sequence[str | int]) -> list[Any] | None:
    """The items at this path of ``workload``, or of ``ctx`` as the step run sees it now; ``None`` if there are none.
    They are not copied, since values of the state never change.
    """
    value: Any = {"workload": state.workload, "ctx": {**run.ctx, **run.patches}}
    if not source or source[0] not in value:
        return None
    for key in source:
        try:
            value = value[key]
        except (LookupError, TypeError):
            return None
    return items_of(value)


def loop_at(loop: LoopState | None, path: Path) -> LoopState | None:
    """The level inside the iteration ``path`` (the outermost for ``()``); ``None`` if it is not running."""
    for index in path:
        if loop is None:
            return None
        loop = loop.inner.get(index)
    return loop


def with_loop(outermost: LoopState | None, path: Path, level: LoopState, failed_leaves: int = 0) -> LoopState:
    """``outermost`` with ``level`` inside the iteration ``path``, and its failures counted in the levels around it."""
    if not path or outermost is None:
        return level
    inner = with_loop(outermost.inner.get(path[0]), path[1:], level, failed_leaves)
    failed_leaves += outermost.failed_leaves
    return replace(outermost, inner={**outermost.inner, path[0]: inner}, failed_leaves=failed_leaves)


def end_iteration(
    state: Execution,
    run: StepRun,
    path: Path,
    ending: Literal["ok", "failed", "skipped"],
    payload: Payload,
    error: ErrorInfo | None = None,
    *,
    unattended: int = 0,
) -> Execution:
    """Ends the iteration ``path`` of a running level; ``unattended`` becomes the step run's count."""
    loop, index = loop_at(run.loop, path[:-1]), path[-1]
    assert loop is not None
    failed_leaves = 0
    if not loop.has_ended(index):
        done, low = loop.done | 1 << (index - loop.low), loop.low
        while done & 1:
            done >>= 1
            low += 1
        changes: dict[str, Any] = {"done": done, "low": low, ending: getattr(loop, ending) + 1}
        if index in loop.inner:
            changes["inner"] = {key: value for key, value in loop.inner.items() if key != index}
        if ending == "failed":
            changes["first_error"] = loop.first_error or error
            failed_leaves = 0 if index in loop.inner else 1
            changes["failed_leaves"] = loop.failed_leaves + failed_leaves
        size = loop.results_bytes + (payload.reference.size if payload.reference else len(payload.value)) + 1
        if loop.spilled or payload.reference is not None or size > state.limits.max_inline_bytes:
            changes |= {"results": None, "results_bytes": size, "spilled": True}
        else:
            changes |= {"results": (index, payload, loop.results), "results_bytes": size}
        loop = replace(loop, next_index=max(loop.next_index, index + 1), **changes)
    outermost = with_loop(run.loop, path[:-1], loop, failed_leaves)
    return with_run(state, replace(run, loop=outermost, unattended=unattended))


def loop_result(loop: LoopState, execution_id: str, step_run_id: str) -> Payload:
    """The iteration results as a list in index order, failed ones null; a journal reference if the list is large."""
    if loop.spilled:
        key = f"{execution_id}.{step_run_id}"
        return Payload(reference=Reference("journal", key, loop.results_bytes, schema_hint=f"array of {loop.count}"))
    results: list[bytes] = [bytes(EMPTY)] * loop.count
    link = loop.results
    while link is not None:
        index, payload, link = link
        results[index] = bytes(payload.value)
    return Payload(msgspec.Raw(b"[" + b",".join(results) + b"]"))


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
        failed_leaves=loop.failed_leaves,
        first_error=loop.first_error,
        items=items,
        pages=pages,
        inner=inner,
    )


def start_level(run: StepRun, path: Path, level: LoopState | None, *, local: bool) -> StepRun | None:
    """Starts a level inside the iteration ``path`` of a step run; ``None`` if it began before.

    A paged-out level is already in the state, and begins with its pages.
    """
    paged_out = loop_at(run.loop, path)
    if paged_out is not None:
        if paged_out.begun:
            return None
        return replace(run, loop=with_loop(run.loop, path, replace(paged_out, begun=True, local=local)))
    if not path:
        return run if level is None else replace(run, loop=level)
    around = loop_at(run.loop, path[:-1])
    if around is None or path[-1] < around.next_index:
        return None
    inner = around.inner if level is None else {**around.inner, path[-1]: level}
    around = replace(around, next_index=path[-1] + 1, inner=inner)
    return replace(run, loop=with_loop(run.loop, path[:-1], around))


def _on_loop_started(state: Execution, fact: events.LoopStarted) -> Execution:
    """Starts a distributed level with its items, or with the pages a worker has paged out."""
    run = state.runs.get(fact.step_run_id)
    if run is None or run.ended:
        return state
    items = named_items(state, run, fact.source) or fact.items
    level = LoopState(items, fact.count, False, fact.max_in_flight)
    begun = start_level(run, fact.path, level, local=False)
    return state if begun is None else with_run(state, begun)


def _on_loop_paged(state: Execution, fact: events.LoopPaged) -> Execution:
    """Appends the next items of a long list, in a journal of an earlier version."""
    run = state.runs.get(fact.step_run_id)
    loop = loop_at(run.loop, fact.path) if run is not None else None
    if run is None or loop is None or len(loop.items) + len(fact.items) > loop.count:
        return state
    loop = replace(loop, items=loop.items + fact.items)
    return with_run(state, replace(run, loop=with_loop(run.loop, fact.path, loop)))


def _on_iteration_failed(state: Execution, fact: events.LoopIterationFailed) -> Execution:
    """Fails the iteration around an inner loop that could not start or has failed."""
    run = state.runs.get(fact.step_run_id)
    around = loop_at(run.loop, fact.path[:-1]) if run is not None else None
    if run is None or run.ended or around is None or around.has_ended(fact.path[-1]):
        return state
    error = replace(fact.error, index=fact.path[-1])
    return end_iteration(state, run, fact.path, "failed", Payload(), error, unattended=run.unattended + 1)


RULES: Final[Rules] = {
    events.LoopStarted: _on_loop_started,
    events.LoopPaged: _on_loop_paged,
    events.LoopIterationFailed: _on_iteration_failed,
}
