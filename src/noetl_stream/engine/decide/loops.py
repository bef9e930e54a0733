"""Decisions about loops on the server: their items, which iterations may start, when they end (LANGUAGE §6)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from noetl_stream.engine.evolve.loops import items_of, named_items
from noetl_stream.engine.scope import expression_failure, snapshot_scope
from noetl_stream.engine.state import Execution, LoopState, StepRun
from noetl_stream.model import events
from noetl_stream.model.events import Fact, Path
from noetl_stream.model.ids import command_of, paging_of
from noetl_stream.model.json import codec
from noetl_stream.model.limits import Limits
from noetl_stream.model.outcome import ErrorInfo
from noetl_stream.playbook.plan import LoopPlan, Plan
from noetl_stream.sealing.data_references import read_reference
from noetl_stream.template import ExpressionError, OverBudget, ReferenceNeeded, Scope, render, render_number


def open_loop(plan: Plan, state: Execution, run: StepRun, level: LoopPlan, path: Path = ()) -> Sequence[Fact]:
    """Evaluates ``in`` and ``max_in_flight`` of a level once and starts it; on an error fails the step or, for an inner
    level,
    the iteration around it.

    A list that is a value of ``workload`` or ``ctx`` is recorded by name. A worker pages the items out if they are rows
    of a task, if they read, cost or yield too much for the server or its journal, and after very many iterations have
    ended on the server, to bound what follows from one fact.

    Raises:
        ReferenceNeeded: ``in`` reads a result that must be loaded first.
    """
    limits = state.limits
    if level.batch is not None or (path and run.unattended >= limits.max_decisions_per_fact):
        return (_page_out(run, path),)
    scope = snapshot_scope(plan, state, run, level.items, level.max_in_flight, path=path)
    try:
        named = named_items(state, run, level.items.path)
        items = loop_items(level, scope) if named is None else named
        at_once = loop_window(level, scope, limits.max_in_flight)
    except ReferenceNeeded as needed:
        # The list in a large result is probably large. An inner level opens too often to ask a worker each time.
        most = limits.max_resolve_bytes if path else min(limits.max_resolve_bytes, limits.max_inline_bytes)
        if needed.reference.size > most:
            return (_page_out(run, path),)
        raise
    except OverBudget:
        return (_page_out(run, path),)
    except ExpressionError as error:
        return (_fail(run, expression_failure("loop", error), path),)
    if named is None and len(codec.encode(items)) > most_inline(limits):
        return (_page_out(run, path),)
    inline, source = (items, []) if named is None else ([], list(level.items.path))
    if level.placement == "distributed" or not items:  # an empty loop completes at once, without a worker
        return (events.LoopStarted(run.step_run_id, len(items), inline, at_once, path=path, source=source),)
    scheduled = events.StepScheduled(
        run.step_run_id,
        command_of(run.step_run_id, path),
        path,
        items=inline or None,
        max_in_flight=at_once,
        source=source,
    )
    return (scheduled,)


def most_inline(limits: Limits) -> int:
    """The most bytes of loop items in one event."""
    return min(limits.max_inline_bytes, limits.max_loop_items_bytes)


def loop_items(level: LoopPlan, scope: Scope) -> list[Any]:
    """The items of a level.

    Raises:
        ExpressionError: ``in`` cannot be evaluated, or has the wrong type.
        ReferenceNeeded: it reads a result kept by reference.
    """
    value = render(level.items, scope)
    items = items_of(value)
    if items is None:
        found = read_reference(value)
        kind = "text" if isinstance(value, str) else type(value).__name__ if found is None else found.what
        remedy = "; `| batch(1000)` makes tables of 1,000 rows" if found is not None and found.rows is not None else ""
        text = f"must be a list or a mapping, not {kind}{remedy}"
        raise ExpressionError(text, expression=str(level.items.source))
    return items


def loop_window(level: LoopPlan, scope: Scope, max_in_flight: int) -> int:
    """The most iterations of a level that may run at once.

    Raises:
        ExpressionError: ``max_in_flight`` cannot be evaluated, or is not a whole number.
        ReferenceNeeded: it reads a result kept by reference.
    """
    at_once = 1 if level.mode == "sequential" else render_number(level.max_in_flight, scope)
    if isinstance(at_once, bool) or not isinstance(at_once, int) or at_once < 1:
        raise ExpressionError(f"max_in_flight must be a whole number of at least 1, not {at_once!r}")
    return min(at_once, max_in_flight)


def move_loop(plan: Plan, state: Execution, run: StepRun) -> Sequence[Fact]:
    """The next facts of a distributed loop: it fills its windows, stops, or ends with exactly one routed event."""
    loop, level = run.loop, plan.steps[run.step].loop
    if loop is None or level is None or loop.local or run.ended or state.ending:
        return ()
    return _move(plan, state, run, loop, level, ())


def _move(plan: Plan, state: Execution, run: StepRun, loop: LoopState, level: LoopPlan, path: Path) -> Sequence[Fact]:
    if not loop.begun:
        return (_begin(run, loop, level, path),)
    if loop.first_error is not None and level.failure_mode == "fail_fast":
        return _stop(state, run, loop.first_error, path)
    if level.inner is not None:
        for index, inner in loop.inner.items():
            if not inner.local and (moved := _move(plan, state, run, inner, level.inner, (*path, index))):
                return moved
    if loop.ended == loop.count:
        error = too_many_failures(level, loop.failed, loop.count, loop.first_error)
        if error is not None:
            return (_fail(run, error, path),)
        counts = loop.count, loop.ok, loop.failed, loop.skipped
        return (events.LoopDone(run.step_run_id, *counts, path, loop.failed_leaves),)
    room = min(loop.max_in_flight - (loop.next_index - loop.ended), loop.count - loop.next_index)
    if room <= 0:
        return ()
    if level.inner is not None:  # one at a time: its items may depend on earlier results
        return open_loop(plan, state, run, level.inner, (*path, loop.next_index))
    return tuple(
        events.StepScheduled(run.step_run_id, command_of(run.step_run_id, (*path, index)), (*path, index))
        for index in range(loop.next_index, loop.next_index + room)
    )


def too_many_failures(level: LoopPlan, failed: int, count: int, first: ErrorInfo | None) -> ErrorInfo | None:
    """The error of a finished level with more failures than it tolerates."""
    tolerated = level.tolerated
    if tolerated is None or first is None or not tolerated.is_exceeded(failed, count):
        return None
    text = f"{failed} of {count} iterations failed; failure.tolerated is {tolerated}"
    return ErrorInfo("too_many_failures", f"{text}; the first, {first.index}: {first.kind}: {first.message}")


def _page_out(run: StepRun, path: Path) -> Fact:
    return events.StepScheduled(run.step_run_id, paging_of(run.step_run_id, path), path, paging=True)


def _begin(run: StepRun, loop: LoopState, level: LoopPlan, path: Path) -> Fact:
    """Starts a level whose items were paged out."""
    if level.placement == "local" and loop.count:
        return events.StepScheduled(run.step_run_id, command_of(run.step_run_id, path), path)
    return events.LoopStarted(run.step_run_id, loop.count, [], loop.max_in_flight, path=path)


def _stop(state: Execution, run: StepRun, error: ErrorInfo, path: Path) -> Sequence[Fact]:
    """Cancels the running iterations of a ``fail_fast`` level with a failed one, then fails the level."""
    own = [assignment for assignment in state.commands if assignment.step_run_id == run.step_run_id]
    in_flight = [assignment for assignment in own if assignment.path[: len(path)] == path]
    if not in_flight:
        return (_fail(run, error, path),)
    running = [assignment for assignment in in_flight if not assignment.cancelling]
    reason = f"iteration {error.index} failed"
    return [events.StepCancelled(run.step_run_id, assignment.command_id, reason) for assignment in running]


def _fail(run: StepRun, error: ErrorInfo, path: Path) -> Fact:
    """The failure of the step, or of the iteration around an inner level."""
    return (
        events.LoopIterationFailed(path, error, run.step_run_id) if path else events.StepFailed(run.step_run_id, error)
    )


PAGE_BYTES: Final = 256 * 1024
"""The most bytes of items in one page; a larger item has a page of its own."""


def split_pages(items: list[Any], size: int) -> Iterator[list[Any]]:
    """Splits items into pages; an empty list has no page.

    Args:
        size: The bytes of JSON of all items together.
    """
    if size <= PAGE_BYTES:
        if items:
            yield items
        return
    page: list[Any] = []
    room = PAGE_BYTES
    for item in items:
        needed = len(codec.encode(item)) + 1
        if needed > room and page:
            yield page
            page, room = [], PAGE_BYTES
        page.append(item)
        room -= needed
    yield page
