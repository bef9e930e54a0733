"""Decisions about slots of limits by key: executions, step runs and tasks request and return them (LANGUAGE §15).

A worker computes the key of a task when it reaches it; all others are computed here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from noetl_stream.engine.scope import expression_failure, snapshot_scope
from noetl_stream.engine.state import Assignment, Execution, Slot, StepRun, changed_entries, due_ms
from noetl_stream.model import events
from noetl_stream.model.aggregates import MAX_KEY_CHARS
from noetl_stream.model.events import Fact, Path, Wait
from noetl_stream.model.ids import timer_of, turn_of
from noetl_stream.model.json import codec
from noetl_stream.model.limits import Limits
from noetl_stream.model.outcome import ErrorInfo
from noetl_stream.playbook.plan import LimitPlan, Plan
from noetl_stream.template import Budget, ExpressionError, OverBudget, Scope, render


def ask_for_execution(plan: Plan, state: Execution, workload: Mapping[str, Any]) -> Fact | None:
    """The slot request of an execution that begins only with a slot; ``None`` if it begins at once.

    Raises:
        ExpressionError: its key is invalid.
    """
    if plan.concurrency is None:
        return None
    names = {"workload": workload, "execution_id": state.execution_id, "execution": state.execution}
    key = _key(plan.concurrency, Scope(names, {}, plan.limits, _budget(plan.limits)))
    state = replace(state, keys=plan.keys)  # the state after the start
    return None if state.has_from_caller(key) else _request(state, plan.concurrency, key)


def ask_for_run(plan: Plan, state: Execution, run: StepRun, limit: LimitPlan) -> Sequence[Fact] | None:
    """The slot request of a step run; empty while it waits, ``None`` if it may begin.

    Steps share the slots of their execution and its caller, or they would wait for each other.

    Raises:
        ReferenceNeeded: the key reads a result that must be loaded first.
    """
    slot = state.slots.get(run.step_run_id)
    if slot is not None:
        return None if slot.granted else ()
    try:
        key = _key(limit, snapshot_scope(plan, replace(state, budget=_budget(state.limits)), run, limit.key))
    except ExpressionError as error:
        return (events.StepFailed(run.step_run_id, expression_failure("limit", error)),)
    whole = state.slots.get("")
    if state.has_from_caller(key) or (whole is not None and whole.key == key):
        return None
    return (_request(state, limit, key, run.step_run_id),)


def ask_for_turn(state: Execution, run: StepRun) -> Sequence[Fact] | None:
    """The request for a step run's turn in its partition; empty while it waits, ``None`` if it may begin."""
    slot_id = turn_of(run.step_run_id)
    if (slot := state.slots.get(slot_id)) is not None:
        return None if slot.granted else ()
    if state.turns[run.place][0] == run.step_run_id:
        return None
    return (events.SlotRequested(run.token.partition, run.step_run_id, 1, slot_id=slot_id, partition=True),)


def grant_turns(state: Execution, settled: Execution) -> Sequence[Fact]:
    """Grants turns to step runs that no longer wait for an earlier one, in order of their claims.

    Only the places are examined in which a step run has changed or begun to wait since the ``settled`` state.
    """
    asked = (
        state.runs[slot.step_run_id]
        for _, slot in changed_entries(settled.slots, state.slots)
        if slot.partition and not slot.granted
    )
    changed = [*(run for _, run in changed_entries(state.runs, settled.runs) if run.token.partition), *asked]
    firsts = (state.runs[state.turns[place][0]] for place in {run.place for run in changed} if place in state.turns)
    return [
        events.SlotGranted(run.token.partition, run.step_run_id, slot_id=turn_of(run.step_run_id))
        for run in sorted(firsts, key=lambda run: run.claimed_at)
        if (slot := state.slots.get(turn_of(run.step_run_id))) is not None and not slot.granted
    ]


def ask_for_task(plan: Plan, state: Execution, suspended: Assignment, wait: Wait) -> Fact:
    """The slot request of a task that a worker has reached; without a limit in the playbook, it is granted at once."""
    step_run_id, key = suspended.step_run_id, wait.key
    assert key is not None
    tasks = plan.steps[state.runs[step_run_id].step].tasks
    limit = next((task.limit for task in tasks if task.name == wait.task), None)
    concurrency, rate = (limit.concurrency, limit.rate) if limit is not None else (None, None)
    return events.SlotRequested(
        key,
        step_run_id,
        concurrency,
        rate,
        slot_id=wait.slot_id,
        task=wait.task,
        path=wait.path,
        namespace=state.keys.namespace_of(key),
    )


def _budget(limits: Limits) -> Budget:
    """The budget of a key, independent of other decisions about the fact."""
    return Budget(limits.max_inline_operations)


def _request(state: Execution, limit: LimitPlan, key: str, step_run_id: str = "") -> Fact:
    namespace = state.keys.namespace_of(key)
    return events.SlotRequested(key, step_run_id, limit.concurrency, limit.rate, limit.on_limit, namespace=namespace)


def _key(limit: LimitPlan, scope: Scope) -> str:
    try:
        return key_of(limit, scope)
    except OverBudget:
        text = "the key costs more than a decision may spend: compute it in a step before"
        raise ExpressionError(text, expression=str(limit.key.source)) from None


def key_of(limit: LimitPlan, scope: Scope) -> str:
    """The key of a limit.

    Raises:
        ExpressionError: it is invalid.
        OverBudget: it costs more than the scope may spend.
        ReferenceNeeded: it reads a result that must be loaded first.
    """
    return key_text(render(limit.key, scope), str(limit.key.source))


def key_text(value: Any, source: str) -> str:
    """The text of a key rendered from this source.

    Raises:
        ExpressionError: it is invalid.
    """
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        shown = codec.encode(value).decode()[:40]
        raise ExpressionError(f"the key must be text or a number, not {shown}", expression=source)
    key = value if isinstance(value, str) else codec.encode(value).decode()
    if not key.strip() or "\0" in key:
        raise ExpressionError("the key is empty", expression=source)
    if len(key) > MAX_KEY_CHARS:
        raise ExpressionError(f"the key has {len(key)} characters; the limit is {MAX_KEY_CHARS}", expression=source)
    return key


def release_slots(state: Execution, settled: Execution) -> Sequence[Fact]:
    """Releases the slots of step runs and attempts that have ended since the ``settled`` state."""
    freed = {
        holder
        for holder, slot in changed_entries(settled.slots, state.slots)
        if slot.over or not _needs_slots(state, slot.step_run_id)
    }
    ended = {one for one, _ in changed_entries(state.runs, settled.runs) if not _needs_slots(state, one)}
    if ended:
        freed |= {holder for holder, slot in state.slots.items() if slot.step_run_id in ended}
    return [_release(holder, state.slots[holder]) for holder in filter(freed.__contains__, state.slots)]


def _release(holder: str, slot: Slot) -> Fact:
    slot_id = holder if slot.task or slot.partition else ""
    return events.SlotReleased(slot.key, slot.step_run_id, slot_id, slot.namespace, slot.partition)


def _needs_slots(state: Execution, step_run_id: str) -> bool:
    """Whether the step run has not ended; for an empty id, whether the execution has not."""
    return not step_run_id or (step_run_id in state.runs and not state.runs[step_run_id].ended)


def set_execution_timer(plan: Plan, state: Execution) -> Sequence[Fact]:
    """The timer of ``executor.spec.timeout_s`` for an execution that waited for its slot; it counts from the grant."""
    timer_id = timer_of(state.execution_id, "execution")
    if plan.timeout_s is None or "" not in state.slots or timer_id in state.timers or state.closing is not None:
        return ()
    return (events.TimerSet(timer_id, "execution", due_ms(state.at_ms, plan.timeout_s)),)


def held_keys(state: Execution, step_run_id: str) -> list[str]:
    """The keys whose slots the tasks of this step run share, as written in the playbook."""
    above = filter(state.has_from_caller, (*state.shared_keys, *state.caller_keys))
    return sorted({*above, *(slot.key for slot in _slots_around(state, step_run_id))})


def keys_for_child(state: Execution, step_run_id: str, path: Path) -> tuple[list[str], list[str]]:
    """The keys whose slots the child called in this iteration shares: keys shared by namespaces, and all others."""
    if not (state.slots or state.shared_keys or state.caller_keys):
        return [], []
    tasks = (slot for _, slot in state.slots_in(step_run_id, path) if slot.is_held)
    own = [*_slots_around(state, step_run_id), *tasks]
    shared = {*state.shared_keys, *(slot.key for slot in own if not slot.namespace)}
    return sorted(shared), sorted({*state.caller_keys, *(slot.key for slot in own if slot.namespace)})


def _slots_around(state: Execution, step_run_id: str) -> list[Slot]:
    """The slots that the execution and the step run hold as a whole."""
    slots = (state.slots.get(holder) for holder in ("", step_run_id))
    return [slot for slot in slots if slot is not None and slot.granted]


def limit_failure(error: ExpressionError) -> ErrorInfo:
    """The error of an execution whose key cannot be evaluated."""
    return expression_failure("executor.spec.policy.concurrency", error)
