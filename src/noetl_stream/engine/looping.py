"""Loops on the server: what they run over, which iterations may start, when they end (LANGUAGE §6)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from noetl_stream.engine.admission import expression_failure, too_large
from noetl_stream.engine.ids import command_of
from noetl_stream.engine.scope import loop_scope
from noetl_stream.engine.state import Execution, StepRun
from noetl_stream.model import codec
from noetl_stream.model.events import Fact, LoopDone, LoopStarted, StepCancelled, StepFailed, StepScheduled
from noetl_stream.model.outcome import ErrorInfo
from noetl_stream.playbook.plan import LoopPlan, Plan
from noetl_stream.template import ExpressionError, ReferenceNeeded, render


def open_loop(plan: Plan, state: Execution, run: StepRun, loop: LoopPlan) -> Sequence[Fact]:
    """``in`` and ``max_in_flight``, evaluated once: the loop's start, or why it cannot start."""
    scope = loop_scope(plan, state, run)
    try:
        items = _items(render(loop.items, scope), loop)
        at_once = 1 if loop.mode == "sequential" else _window(render(loop.max_in_flight, scope), loop)
    except ReferenceNeeded as needed:
        return _refuse(run, expression_failure("loop.in", too_large(str(loop.items.source), needed)))
    except ExpressionError as error:
        return _refuse(run, expression_failure("loop", error))
    size = len(codec.encode(items))
    if size > state.limits.max_loop_items_bytes:
        text = f"loop.in gave {size} bytes; limits.max_loop_items_bytes is {state.limits.max_loop_items_bytes}"
        return _refuse(run, ErrorInfo("limit_exceeded", text))
    at_once = min(at_once, state.limits.max_in_flight)
    if loop.placement == "local" and items:  # an empty one completes at once: no worker is asked
        command_id = command_of(run.step_run_id)
        return (StepScheduled(run.step_run_id, command_id, items=items, max_in_flight=at_once),)
    return (LoopStarted(run.step_run_id, len(items), items, at_once),)


def move_loop(plan: Plan, state: Execution, run: StepRun) -> Sequence[Fact]:
    """What a distributed loop does next: fill its window, stop, or end with exactly one routed event."""
    loop, loop_plan = run.loop, plan.steps[run.step].loop
    if loop is None or loop_plan is None or loop.local or run.ended or state.failing is not None:
        return ()
    if loop.first_error is not None and loop_plan.failure_mode == "fail_fast":
        in_flight = [a for a in state.assignments.values() if a.step_run_id == run.step_run_id]
        if in_flight:
            reason = f"iteration {loop.first_error.index} failed"
            return tuple(
                StepCancelled(run.step_run_id, assignment.command_id, reason)
                for assignment in in_flight
                if not assignment.cancelling
            )
        return (StepFailed(run.step_run_id, loop.first_error),)
    if loop.ended == loop.count:
        return (LoopDone(run.step_run_id, loop.count, loop.ok, loop.failed, loop.skipped),)
    room = min(loop.max_in_flight - (loop.next_index - loop.ended), loop.count - loop.next_index)
    return tuple(
        StepScheduled(run.step_run_id, command_of(run.step_run_id, (index,)), (index,))
        for index in range(loop.next_index, loop.next_index + room)
    )


def _items(value: Any, loop: LoopPlan) -> list[Any]:
    if isinstance(value, list):
        return value
    if isinstance(value, dict):
        return [{"key": key, "value": item} for key, item in value.items()]
    raise ExpressionError(f"gave {type(value).__name__}, not a list or a mapping", expression=str(loop.items.source))


def _window(value: Any, loop: LoopPlan) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
        return value
    raise ExpressionError(f"max_in_flight gave {value!r}, not a whole number from 1")


def _refuse(run: StepRun, error: ErrorInfo) -> Sequence[Fact]:
    return (StepFailed(run.step_run_id, error),)
