"""What an execution waits for, from its folded state."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec.structs import replace

from noetl_stream.engine.state import Execution
from noetl_stream.model.envelope import iso_or_none
from noetl_stream.model.events import Wait
from noetl_stream.model.ids import timer_of
from noetl_stream.operations.waiting_on import bound_ms, on_admission, on_join, on_next, on_pool, on_timer, on_wait
from noetl_stream.playbook.plan import Plan
from noetl_stream.ports.operations.executions import WaitDocument, WaitingOnDocument
from noetl_stream.ports.operations.limits import AwaitedSlotDocument
from noetl_stream.template import Budget

GUARD_OPERATIONS: Final = 20_000
"""What the guards of all waits may cost together. Those that cost more are shown without their values."""

WAITS_EXPLAINED: Final = 50
"""How many held tokens, and how many resting branches, have their guards shown."""


def awaited(state: Execution, plan: Plan | None) -> Iterator[WaitDocument]:
    """Everything that an execution waits for (LANGUAGE §4, §7, §8); a command that a worker runs does not count.

    Args:
        plan: ``None`` if the playbook does not compile here. Guards are then shown as they were recorded.
    """
    state = replace(state, budget=Budget(GUARD_OPERATIONS))
    queued: dict[str, list[str]] = {}
    bounds: dict[str, int | None] = {}
    for assignment in state.assignments.values():
        run = state.runs.get(assignment.step_run_id)
        if assignment.run is None and run is not None:
            queued.setdefault(run.step, []).append(assignment.command_id)
            bounds.setdefault(run.step, bound_ms(state, run))
    for step, command_ids in queued.items():
        waiting_on = on_pool(plan, step, command_ids)
        pool = waiting_on.pool
        yield _wait(step, "a worker" if pool is None else f"a worker of pool {pool.pool}", bounds[step], waiting_on)
    for step_run_id, slot in state.slots.items():
        if not slot.granted and not slot.task:
            run = state.runs.get(step_run_id)
            first = next((waiting.token.step for waiting in state.tokens.values()), "")
            on = WaitingOnDocument(slot=AwaitedSlotDocument(slot.key))
            yield _wait(first if run is None else run.step, f"a slot of key {slot.key}", bound_ms(state, run), on)
    held = [waiting for waiting in state.tokens.values() if waiting.held]
    for number, waiting in enumerate(held):
        token, explained = waiting.token, number < WAITS_EXPLAINED
        timer = timer_of(token.token_id, "admission")
        on = on_admission(state, plan, waiting) if explained else on_timer(state, timer)
        yield _wait(token.step, "admission", bound_ms(state, None, timer), on)
    for number, step_run_id in enumerate(state.resting):
        explained, timer = number < WAITS_EXPLAINED, timer_of(step_run_id, "next")
        on = on_next(state, plan, step_run_id) if explained else on_timer(state, timer)
        yield _wait(state.runs[step_run_id].step, "next", bound_ms(state, None, timer), on)
    for step in dict.fromkeys(waiting.token.step for waiting in state.tokens.values() if waiting.joining):
        yield _wait(step, "join", bound_ms(state, None), on_join(state, plan, step))
    for command_id, suspended in state.suspensions.items():
        run = state.runs[suspended.step_run_id]
        for wait in suspended.waits.values():
            until_ms = bound_ms(state, run, timer_of(command_id, "wait", wait.path))
            yield _wait(run.step, _cause(wait), until_ms, on_wait(state, command_id, wait), wait)


def _wait(
    step: str, what: str, until_ms: int | None, waiting_on: WaitingOnDocument, wait: Wait | None = None
) -> WaitDocument:
    task, path = (wait.task, list(wait.path)) if wait is not None else (None, [])
    return WaitDocument(step, task, path, what, iso_or_none(until_ms), waiting_on)


def _cause(wait: Wait) -> str:
    if wait.signal is not None:
        return f"signal {wait.signal}"
    if wait.child is not None:
        return f"playbook {wait.child.path} ({wait.child.execution_id})"
    if wait.key is not None:
        return f"a slot of key {wait.key}"
    return "its next attempt" if wait.delay_s is not None else "its time"
